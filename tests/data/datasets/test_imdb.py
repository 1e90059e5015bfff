import pytest

from retinabench.core.errors import InputError
from retinabench.data.datasets import imdb
from support.array_files import write_reviews


def test_reviews_become_the_numbers_of_frequent_words(tmp_path):
    write_reviews(tmp_path)
    data = imdb.read(tmp_path)
    train, test = data.part("train"), data.part("test")
    # Twice each: bad, film, good; then a, it's in alphabetical order.
    number = {"bad": 2, "film": 3, "good": 4, "a": 5, "it's": 6}
    negative = train.inputs[train.targets == 0][0]
    assert negative[-5:].tolist() == [number[word] for word in ("a", "bad", "film", "it's", "bad")]
    assert (negative[:-5] == imdb.FILL).all()
    assert test.inputs[test.targets == 1][0].tolist() == [number["good"]] + [number["film"]] * 99


def test_unknown_words_are_one_number():
    assert imdb.tokens(["good", "unheard"], {"good": 2})[-2:].tolist() == [2, imdb.OTHER]


def test_absent_reviews_say_how_to_get_them(tmp_path):
    with pytest.raises(InputError, match=r"do not come with the package.*Unpack aclImdb"):
        imdb.read(None)
    with pytest.raises(InputError, match="holds no reviews"):
        imdb.read(tmp_path)
