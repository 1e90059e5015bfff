"""Column names of other tools: recognised and said, named by the user, or refused, and never guessed."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError, printable
from retinabench.predictions.layouts import recognise

RECOGNISED = {
    "scikit-learn": ("y_true,y_score", "label,prob"),
    "Keras": ("filename,target,pred", "image_id,label,prob"),
    "upper case": ("Image_ID,Label,Prob,Patient_ID,Split", "image_id,label,prob,patient_id,split"),
    "camel case": ("imageId,trueLabel,yProb,subjectID", "image_id,label,prob,patient_id"),
    "another spelling of gradable": ("image_id,label,prob,Gradeable", "image_id,label,prob,gradable"),
    "gradable as a question": ("image_id,label,prob,is_gradable", "image_id,label,prob,gradable"),
    "blanks": ("image id,ground truth,p referable", "image_id,label,prob"),
    "a decision beside a score": ("id,y_true,y_pred,y_score", "image_id,label,y_pred,prob"),
    "exact names win": (
        "image_id,filename,label,target,prob,score",
        "image_id,filename,label,target,prob,score",
    ),
    "five classes": ("image,grade,class_0,class_1,class_2", "image_id,grade,prob_0,prob_1,prob_2"),
    "classes in any order": ("image,y,p1,p0", "image_id,label,prob_1,prob_0"),
    "samples stay": ("image_id,label,prob_0,prob_1,score", "image_id,label,prob_0,prob_1,score"),
    "features": ("image,y,p,feature_0,feature_1", "image_id,label,prob,feature_0,feature_1"),
    "not contiguous": ("image,y,p,class_1,class_2", "image_id,label,prob,class_1,class_2"),
    "a typo beside the real one": (
        "image_id,label,prob,patient_id,patients",
        "image_id,label,prob,patient_id,patients",
    ),
    "no typo": ("image_id,label,prob,site,sex,grader", "image_id,label,prob,site,sex,grader"),
    "other languages": ("image_id,label,prob,größe,年齢", "image_id,label,prob,größe,年齢"),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_usual_names(name):
    given, want = RECOGNISED[name]
    found = recognise(given.split(","), {})
    assert ",".join(found.names) == want
    assert bool(found.said()) == (given != want)


def test_names_of_the_user_come_first():
    found = recognise(["file", "label", "y_true", "score"], {"label": "y_true"})
    assert found.names == ("image_id", "", "label", "prob")
    assert found.said() == [
        "read 'file' as image_id, 'score' as prob; --column NAME=COLUMN names another",
        "read 'y_true' as label",
    ]
    assert recognise(["a", "b", "c", "d"], {"prob_0": "c", "prob_1": "d"}).names == (
        "a",
        "b",
        "prob_0",
        "prob_1",
    )


REFUSED = {
    "two labels": ("image,target,y_true,p", {}, "several columns that may be label: target, y_true. Say which: --column label=target"),
    "two ids": ("image,filename,y,p", {}, "several columns that may be image_id"),
    "two scores": ("image,y,score,p", {}, "several columns that may be prob: score, p"),
    "a score and classes": ("image,y,score,class_0,class_1", {}, "several columns that may be prob: score, class_0, class_1"),
    "a Cyrillic letter": ("image_id,l\u0430bel,prob", {}, "column 'l\u0430bel': looks like 'label' but holds U+0430 (cyrillic small letter a)"),
    "an invisible letter": ("image_id,label,pro\u200bb", {}, "looks like 'prob' but holds U+200B (zero width space)"),
    "wide letters": ("image_id,\uff4cabel,prob", {}, "looks like 'label' but holds U+FF4C"),
    "a look-alike beside the real one": ("image_id,label,l\u0430bel,prob", {}, "looks like 'label'"),
    "Label beside label": ("image_id,label,Label,prob", {}, "several columns that may be label: label, Label"),
    "a wrong letter": ("image_id,label,prob,patiend_id", {}, "column 'patiend_id': is spelt almost like 'patient_id'"),
    "a lost letter": ("image_id,label,prob,Subect_ID", {}, "almost like 'patient_id', which the table lacks. Say --column patient_id=Subect_ID"),
    "exchanged letters": ("image_id,label,prob,spilt", {}, "almost like 'split'"),
    "a letter too many": ("image_id,label,prob,domains", {}, "almost like 'domain'"),
    "a misspelt gradable": ("image_id,label,prob,gradabel", {}, "column 'gradabel': is spelt almost like 'gradable'"),
    "gradable twice": ("image_id,label,prob,gradable,Gradable", {}, "several columns that may be gradable: gradable, Gradable"),
    "absent": ("image,y,p", {"label": "truth"}, "column 'truth': is missing"),
    "unknown": ("image,y,p", {"lable": "y"}, "unknown column 'lable'. Did you mean 'label'?"),
    "named twice": ("image,y,p", {"label": "y", "grade": "y"}, "column 'y' is named twice"),
    "stands twice": ("image,y,y,p", {"label": "y"}, "stands twice in the header"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_be_two_things_is_refused(name):
    given, wanted, message = REFUSED[name]
    with pytest.raises(InputError) as caught:
        recognise(given.split(","), wanted)
    assert printable(message) in str(caught.value)
