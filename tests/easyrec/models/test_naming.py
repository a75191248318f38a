from easyrec.models.naming import below, stable_names


def test_numbers_that_keras_adds_are_counted_anew_within_each_parent():
    paths = ["m/dense_7/kernel", "m/dense_7/bias", "m/dense_9/kernel", "n/dense_11/kernel", "m/dense/kernel"]
    expected = ["m/dense/kernel", "m/dense/bias", "m/dense_1/kernel", "n/dense/kernel", "m/dense_2/kernel"]
    assert stable_names(paths) == expected


def test_names_are_unique_even_where_paths_share_a_base():
    names = stable_names(["m/a_0/kernel", "m/a_1/kernel", "m/a/kernel"])
    assert len(set(names)) == 3


def test_a_path_without_its_layer_gets_it():
    assert below("m", "seed_generator/state") == "m/seed_generator/state"
    assert below("m", "m/dense/kernel") == "m/dense/kernel"
