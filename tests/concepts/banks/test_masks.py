import json

import numpy as np
import pytest
from pydantic import ValidationError

from retinabench.concepts.banks import masks as lesion_images
from retinabench.concepts.banks.bank import prepare_samples
from retinabench.concepts.banks.definition import BankDefinition, CocoFile, bank_names, find_definition
from retinabench.concepts.banks.masks import collected, matching, one_file, patient_of, run_lengths, uncompressed
from retinabench.concepts.banks.tables import read_images
from retinabench.core.errors import InputError
from retinabench.data.archives import Files
from retinabench.data.synthetic.fundus import LESIONS, draw
from support.bank_files import mask, opened, picture, refused


def test_every_definition_that_comes_along_is_sound():
    assert len(bank_names()) == 12
    concepts = {name: len(find_definition(name).concepts) for name in bank_names()}
    assert (concepts["isic2018"], concepts["oct_biomarkers"], concepts["olives"]) == (5, 11, 16)
    assert (concepts["chexpert"], concepts["chestxray14"]) == (14, 14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title = "x"\n', "needs exactly one of the tables table, masks, coco, idrid, synthetic"),
        ('title = "x"\n[table]\nfile = "x"\npaht = "y"\n', "unknown key 'table.paht'. Did you mean 'path'"),
        ('title = "x"\n[table]\nfile = "x"\npath = "y"\n', "path holds no {image}"),
        ('title = "x"\n[table]\nfile = "x"\nunknown = ["1"]\n', "cannot mean two of"),
        ('title = "x"\n[masks]\nimages = "x"\nmask = "{image}_{concept}"\n', "masks need concepts"),
        ("title = 3\nidrid = {}\n", "title: input should be a valid string"),
        ("[table\n", "is not TOML"),
    ],
)
def test_a_wrong_definition_is_one_line(tmp_path, text, message):
    (tmp_path / "x.toml").write_text(text)
    assert message in refused(tmp_path / "x.toml", tmp_path)


NAMES = {"set/a/images/1.jpg", "set/a/images/2.png", "set/b/images/1.jpg", "set/b/train.csv", "images/3.jpg"}


def test_a_pattern_fits_the_last_parts_of_a_path(tmp_path):
    files = Files(tmp_path, loose=NAMES)
    assert matching(files, "images/*.jpg") == [
        ("images/3.jpg", ""), ("set/a/images/1.jpg", "set/a/"), ("set/b/images/1.jpg", "set/b/"),
    ]  # fmt: skip
    assert one_file(files, "train.csv") == ("set/b/train.csv", "set/b/")
    assert one_file(files, "b/*.csv") == ("set/b/train.csv", "set/")
    with pytest.raises(InputError, match=r"holds no file 'test\.csv'"):
        one_file(files, "test.csv")
    with pytest.raises(InputError, match=r"holds 2 files '1.jpg'.*such as set/a/images/"):
        one_file(files, "1.jpg")


def test_images_are_named_by_what_tells_them_apart(tmp_path):
    definition, files = find_definition("folder"), Files(tmp_path, loose=NAMES)

    def named(*names):
        return collected(definition, files, names, ["x"], np.zeros((len(names), 1), np.int8)).sample_id.tolist()

    assert named("set/a/images/1.jpg", "set/a/images/2.png") == ["1", "2"]
    assert named("set/a/images/1.jpg", "set/b/images/1.jpg") == ["set/a/images/1", "set/b/images/1"]
    with pytest.raises(InputError, match="is named twice"):
        named("images/3.jpg", "images/3.jpg")
    with pytest.raises(InputError, match="holds no image"):
        named()


def test_a_patient_is_found_in_the_name_of_an_image():
    assert patient_of("train/patient007/study1.jpg", r"patient\d+") == "patient007"
    assert patient_of("train/x.jpg", r"patient\d+") == patient_of("train/x.jpg", None) == "train/x.jpg"


def test_a_pattern_of_others_takes_linear_time_and_a_wrong_one_is_one_line():
    """Python's own matcher would need 2^40 steps for this one."""
    assert patient_of("a" * 40 + "!", "(?:a+)+$") == "a" * 40 + "!"
    for pattern in ("(", "(?=a)b", "(a)b"):
        with pytest.raises(ValidationError, match="not a regular expression of RE2"):
            CocoFile(file="x.json", patient_pattern=pattern)


@pytest.fixture
def isic(tmp_path):
    attributes = find_definition("isic2018").concepts
    for k in range(3):
        picture(tmp_path / f"ISIC2018_Task1-2_Training_Input/ISIC_000000{k}.jpg")
        for j, attribute in enumerate(attributes):
            box = (12, 0, 16, 4) if j == k else None
            mask(tmp_path / f"ISIC2018_Task2_Training_GroundTruth_v3/ISIC_000000{k}_attribute_{attribute}.png", box)
    return tmp_path


def test_isic_has_five_masks_per_image(isic):
    images = opened("isic2018", isic)
    assert images.concepts == ("pigment_network", "negative_network", "streaks", "milia_like_cyst", "globules")
    assert images.truth.tolist() == np.eye(3, 5, dtype=int).tolist()
    assert images.sample_id[0] == "ISIC_0000000"
    masks = images.masks(0)
    assert masks.shape == (5, 24, 24)  # padded to a square: 4 black rows above
    assert np.argwhere(masks[0]).min(axis=0).tolist() == [4, 12]
    assert masks.sum() == 16
    assert images.image(0, 12).shape == (12, 12, 3)
    assert not images.image(0, 24)[0].any()


def test_wrong_masks_are_named(isic):
    truths = isic / "ISIC2018_Task2_Training_GroundTruth_v3"
    mask(truths / "ISIC_0000001_attribute_streaks.png", size=(10, 10))
    with pytest.raises(InputError, match=r"streaks.png: is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("isic2018", isic).masks(1)
    (truths / "ISIC_0000001_attribute_streaks.png").write_bytes(b"no image")
    assert "streaks.png: is not an image" in refused("isic2018", isic)
    (truths / "ISIC_0000001_attribute_streaks.png").unlink()
    assert "ISIC_0000001_attribute_streaks.png' is missing" in refused("isic2018", isic)
    assert "holds no images" in refused("isic2018", truths)


@pytest.mark.parametrize("grid", [1, 2, 3, 5])
def test_a_region_has_what_a_pixel_of_its_masks_has(grid):
    masks = np.random.default_rng(grid).random((3, 30, 45)) < 0.01
    found = lesion_images.region_truth(masks, grid)
    high, wide = 30 // grid, 45 // grid
    for k, (row, column) in enumerate(np.ndindex(grid, grid)):
        block = masks[:, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        assert found[k].tolist() == block.any(axis=(1, 2)).tolist()


def test_images_and_names_follow_the_same_order():
    image = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    cut = lesion_images.region_images(image, 2)
    assert np.array_equal(cut[1], image[:2, 2:])
    assert np.array_equal(cut[2], image[2:, :2])
    assert lesion_images.region_ids("x", 2) == ["x/r1c1", "x/r1c2", "x/r2c1", "x/r2c2"]


def test_the_regions_of_drawn_images_add_up_to_them(tmp_path):
    images = lesion_images.drawn(10, seed=5, population="shifted", mask_size=64)
    found = prepare_samples(images, tmp_path, size=32, grid=4, source={})
    pixels = found.images(np.arange(160))
    assert pixels.shape == (160, 32, 32, 3)
    assert np.array_equal(found.truth.reshape(10, 16, 5).any(axis=1), images.truth)
    assert 0 < found.truth.mean() < images.truth.mean()  # a region has less than its image
    lit = pixels.reshape(10, 4, 4, -1).mean(axis=-1)
    assert (lit[:, 1:3, 1:3].mean(axis=(1, 2)) > lit[:, 0, 0]).all()  # the middle of the disc, not its dark corner


def test_a_definition_says_how_many_retinas_are_drawn_and_of_which_population():
    few = BankDefinition.model_validate({"title": "few", "synthetic": {"images": 11, "population": "shifted"}})
    assert len(images := read_images(few, None, seed=3)) == 11
    assert images.sample_id[0].startswith("shifted")
    assert len(read_images(few, None, images=12)) == 12


def test_every_drawn_lesion_belongs_to_one_concept():
    covered = [kind for kinds in lesion_images.DRAWN.values() for kind in kinds]
    # Beading is a change of the veins, not a lesion that the published concepts name.
    assert sorted([*covered, "venous_beading"]) == sorted(LESIONS)


def test_the_truth_of_drawn_images_is_what_their_masks_show():
    images = lesion_images.drawn(30, seed=5, population="shifted", mask_size=128)
    shown = np.array([images.masks(row).any(axis=(1, 2)) for row in range(30)])
    assert np.array_equal(images.truth, shown)
    assert images.truth.any(axis=0).all()  # new vessels too: the population has every grade


def test_a_mask_covers_exactly_the_kinds_of_its_concept():
    images = lesion_images.drawn(60, seed=5, population="shifted", mask_size=64)
    row = int(images.truth.sum(axis=1).argmax())
    assert images.truth[row].sum() >= 3
    drawn = draw(row, size=64, seed=5, population="shifted").masks
    for lesion_mask, kinds in zip(images.masks(row), lesion_images.DRAWN.values(), strict=True):
        layers = [drawn[kind] for kind in kinds if kind in drawn]
        expected = np.any(layers, axis=0) if layers else np.zeros((64, 64), bool)
        assert np.array_equal(lesion_mask, expected)


def test_a_split_keeps_patients_whole_and_depends_on_the_seed_alone():
    images = lesion_images.drawn(101, seed=1)
    trained, questioned = lesion_images.split(images, 3, 0.3)
    assert sorted([*trained, *questioned]) == list(range(101))
    assert not set(images.patient_id[trained]) & set(images.patient_id[questioned])
    assert 30 <= len(questioned) <= 31
    again, other = lesion_images.split(images, 3, 0.3)[1], lesion_images.split(images, 4, 0.3)[1]
    assert np.array_equal(questioned, again)
    assert not np.array_equal(questioned, other)


def compressed(counts):
    """COCO's text of run lengths, written from its description: five bits a group, differences from the fourth on."""
    text = ""
    for k, count in enumerate(counts):
        value = count - (counts[k - 2] if k > 2 else 0)
        more = True
        while more:
            group, value = value & 0x1F, value >> 5
            more = value != (-1 if group & 0x10 else 0)
            text += chr(48 + group + (0x20 if more else 0))
    return text


def test_compressed_runs_are_the_plain_ones():
    random = np.random.default_rng(0)
    for _ in range(50):
        counts = random.integers(0, 3000, random.integers(1, 12)).tolist()
        assert uncompressed(compressed(counts)) == counts


def test_a_mask_of_pycocotools():
    # maskUtils.encode of a 5 x 4 mask (height 5) with the 2 x 2 block at rows 1-2, columns 1-2.
    expected = np.zeros((5, 4), bool)
    expected[1:3, 1:3] = True
    assert np.array_equal(run_lengths([6, 2, 3, 2, 7], 5, 4), expected)
    assert uncompressed("62304") == [6, 2, 3, 2, 7]


def test_runs_that_do_not_fill_the_image_are_refused():
    with pytest.raises(ValueError, match="runs of 19 pixels for 20"):
        run_lengths([6, 2, 3, 2, 6], 5, 4)


COCO = {
    "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
    "categories": [{"id": 1, "name": "spot"}, {"id": 3, "name": "line"}],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 1, "segmentation": [[2, 2, 5, 2, 5, 5, 2, 5]], "bbox": [2, 2, 4, 4]},
        {"id": 2, "image_id": 9, "category_id": 3, "segmentation": {"size": [16, 24], "counts": [18, 4, 362]}},
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [10, 4, 3, 2]},
    ],
}


def coco(folder, content):
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations/instances.json").write_text(json.dumps(content))
    for name in "ab":
        picture(folder / f"images/{name}.png")
    return folder


def test_coco_polygons_runs_and_boxes_become_masks(tmp_path):
    images = opened("coco", coco(tmp_path, COCO))
    assert images.concepts == ("spot", "line")
    assert images.truth.tolist() == [[1, 0], [1, 1]]
    spot = images.masks(0)[0]
    assert spot[4 + 2 : 4 + 6, 2:6].all()  # 4 black rows above the image of 24 x 16
    assert spot.sum() == 16
    box, run = images.masks(1)
    assert np.argwhere(box).tolist() == [[8 + r, 10 + c] for r in range(2) for c in range(3)]
    assert np.argwhere(run).tolist() == [[4 + row, 1] for row in range(2, 6)]  # column by column: 16 pixels, then 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "is not a COCO file"),
        ({"annotations": [{"image_id": 8, "category_id": 1}]}, "is not a COCO file (KeyError: 8)"),
        ({"images": [{"id": 7, "file_name": "gone.png"}], "annotations": []}, "the image 'images/gone.png' is missing"),
    ],
)
def test_a_wrong_coco_file_is_one_line(tmp_path, change, message):
    assert message in refused("coco", coco(tmp_path, COCO | change))


def test_runs_of_another_size_are_refused(tmp_path):
    wrong = [{"id": 2, "image_id": 9, "category_id": 3, "segmentation": {"size": [10, 10], "counts": [100]}}]
    with pytest.raises(InputError, match="is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("coco", coco(tmp_path, COCO | {"annotations": wrong})).masks(1)
