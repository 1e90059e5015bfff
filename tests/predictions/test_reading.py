def test_labels_may_be_empty_only_where_it_is_said(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("image_id,label,prob,grade\na,1,0.1,\nb,,0.7,3\nc,,0.2,\n")
    with pytest.raises(InputError, match="row 2, column 'label': is empty"):
        rb.read_predictions(path)
    found = rb.read_predictions(path, unlabelled=True)
    assert found.label.tolist() == [
        1,
        0,
        0,
    ]  # a label that is there in some rows is not derived from the grade in others
    assert found.subgroups["labelled"].tolist() == ["yes", "no", "no"]
    path.write_text("image_id,label,prob,grade\na,,0.1,0\nb,,0.7,3\nc,,0.2,\n")
    found = rb.read_predictions(path, unlabelled=True)
    assert found.label.tolist() == [0, 1, 0]
    assert found.subgroups["labelled"].tolist() == ["yes", "yes", "no"]
