from retinabench.core.errors import InputError, nearest, one_edit, printable


def test_the_message_names_file_row_column_and_hint():
    error = InputError("is empty", file="x.csv", row=3, column="grade", hint="Fill it in.")
    assert str(error) == "x.csv, row 3, column 'grade': is empty. Fill it in."
    assert (error.file, error.row, error.column) == ("x.csv", 3, "grade")
    assert str(InputError("nothing to do.")) == "nothing to do."
    assert str(InputError("nothing to do.", hint="Rest.")) == "nothing to do. Rest."


def test_messages_are_one_printable_line_of_limited_length():
    assert printable("a\nb\x1b[31m\x00") == "a\\nb\\x1b[31m\\x00"
    assert printable("ä €") == "ä €"
    assert len(printable("x" * 5000)) == 1000
    assert "\n" not in str(InputError("a\nb"))


def test_the_nearest_name_comes_before_all_valid_ones():
    assert nearest("dropuot", ["map", "dropout"]) == "Did you mean 'dropout'? Valid: dropout, map."
    assert nearest("zzz", ["map", "dropout"]) == "Valid: dropout, map."


def test_one_edit_is_one_letter_or_two_neighbours():
    near = ("splitt", "spli", "split5", "spilt", "aplit", "slit", "psplit")
    assert all(one_edit(word, "split") for word in near)
    assert not any(one_edit(word, "split") for word in ("split", "tilps", "sp", "splitts", "platt"))
