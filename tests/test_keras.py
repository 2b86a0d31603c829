"""Keras files: those of Keras itself, and such that are written by hand; which weights belong to which layers."""

import io
import json
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from intervalcert import evaluate, load_model

h5py = pytest.importorskip("h5py", reason="the package h5py is not installed")

FIXTURES = Path(__file__).parent / "fixtures"
FILES = sorted(path.name for path in FIXTURES.glob("*.keras"))


# -- files, as Keras writes them -------------------------------------------------------------------------------------


def policy(name="float32"):
    return {"module": "keras", "class_name": "DTypePolicy", "config": {"name": name}, "registered_name": None}


def initializer(name):
    return {"module": "keras.initializers", "class_name": name, "config": {}, "registered_name": None}


USUAL = {
    "Dense": {
        "activation": "linear",
        "use_bias": True,
        "kernel_initializer": initializer("GlorotUniform"),
        "bias_initializer": initializer("Zeros"),
        "kernel_regularizer": None,
        "bias_regularizer": None,
        "kernel_constraint": None,
        "bias_constraint": None,
        "quantization_config": None,
    },
    "Flatten": {"data_format": "channels_last"},
    "ReLU": {"max_value": None, "negative_slope": 0.0, "threshold": 0.0},
    "Softmax": {"axis": -1},
    "Rescaling": {"offset": 0.0},
    "Normalization": {"axis": [-1], "invert": False, "mean": None, "variance": None},
    "BatchNormalization": {
        "axis": -1,
        "momentum": 0.99,
        "epsilon": 0.001,
        "center": True,
        "scale": True,
        **{f"{x}_initializer": initializer("Zeros") for x in ("beta", "gamma", "moving_mean", "moving_variance")},
        **{f"{x}_{y}": None for x in ("beta", "gamma") for y in ("regularizer", "constraint")},
        "synchronized": False,
        "renorm": False,
        "renorm_clipping": None,
        "renorm_momentum": 0.99,
    },
    "Dropout": {"rate": 0.5, "seed": None, "noise_shape": None},
    "AlphaDropout": {"rate": 0.5, "seed": 3, "noise_shape": None},
    "GaussianDropout": {"rate": 0.5, "seed": None},
    "GaussianNoise": {"stddev": 0.5, "seed": None},
    "ActivityRegularization": {"l1": 0.5, "l2": 0.0},
}


def layer(kind, **config):
    made = {"name": None, "trainable": True, "dtype": policy(), **USUAL.get(kind, {}), **config}
    return {"module": "keras.layers", "class_name": kind, "config": made, "registered_name": None}


def source(shape, **config):
    made = {"batch_shape": [None, *shape], "dtype": "float32", "sparse": False, "ragged": False, "name": "input"}
    return {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {**made, "optional": False, **config},
        "registered_name": None,
    }


def sequential(layers, shape):
    """config.json; layers without a name get one."""
    for index, data in enumerate(layers):
        if data["config"].get("name") is None:
            data["config"]["name"] = f"layer {index}"
    config = {"name": "model", "trainable": True, "dtype": policy(), "layers": [source(shape), *layers]}
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": {**config, "build_input_shape": [None, *shape]},
        "registered_name": None,
        "build_config": {"input_shape": [None, *shape]},
    }


def tensor(name):
    config = {"shape": [None, 2], "dtype": "float32", "keras_history": [name, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def functional(layers, shape):
    listed = sequential(layers, shape)["config"]["layers"]
    names = [data["config"]["name"] for data in listed]
    for index, data in enumerate(listed):
        node = {"args": [tensor(names[index - 1])], "kwargs": {}}
        data |= {"name": names[index], "inbound_nodes": [node] if index else []}
    ends = {"input_layers": [[names[0], 0, 0]], "output_layers": [[names[-1], 0, 0]]}
    return {
        "module": "keras.src.models.functional",
        "class_name": "Functional",
        "config": {"name": "model", "trainable": True, "layers": listed, **ends},
        "registered_name": "Functional",
    }


def stored(weights):
    """model.weights.h5: arrays for each group of a layer."""
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        file.create_group("vars").attrs["name"] = "model"
        file.create_group("layers")
        for name, arrays in weights.items():
            group = file.create_group(f"layers/{name}/vars")
            group.attrs["name"] = name
            for index, array in enumerate(arrays):
                group[str(index)] = array
    return data.getvalue()


METADATA = b'{"keras_version": "3.15.1", "date_saved": "2026-01-01@00:00:00"}'


def archived(path, document, weights, *, metadata=METADATA, compression=zipfile.ZIP_STORED):
    """A file of these members; a document is written as JSON, a dict of weights as HDF5."""
    members = {
        "metadata.json": metadata,
        "config.json": document if isinstance(document, bytes) else json.dumps(document).encode(),
        "model.weights.h5": weights if isinstance(weights, bytes) else stored(weights),
    }
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def reader(folder):
    """Reads a model of these layers and weights, whose file is written there."""

    def loaded(layers, weights=None, shape=(2,), form=sequential, **hints):
        return load_model(archived(folder / "m.keras", form(layers, shape), weights or {}), **hints)

    return loaded


@pytest.fixture
def read(tmp_path):
    return reader(tmp_path)


def drawn(*shape, seed=0, dtype=np.float32):
    """Numbers k/8 that are not zero: exact in every type."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.integers(1, 40, shape) * rng.choice((-1, 1), shape) / 8).astype(dtype)


# -- what they are, computed apart from the loaders ------------------------------------------------------------------


@np.vectorize(otypes=[object])
def exact(x):
    return Fraction(float(x))


def single(x):
    """The number that a decimal becomes in float32."""
    return Fraction(float(np.float32(x)))


@np.vectorize(otypes=[object])
def relu(x):
    return max(x, Fraction(0))


def leaky(slope):
    return np.vectorize(lambda x: x if x > 0 else slope * x, otypes=[object])


def clipped(low, high):
    return np.vectorize(lambda x: min(max(x, Fraction(low)), Fraction(high)), otypes=[object])


FUNCTIONS = {"relu": lambda: relu, "identity": lambda: lambda x: x, "hard_tanh": lambda: clipped(-1, 1)}
FUNCTIONS |= {"leaky_relu": lambda slope: leaky(Fraction(slope)), "clip": clipped}


def matrix(numbers):
    return np.array([[numbers[i, j] for j in range(numbers.shape[1])] for i in range(numbers.shape[0])], dtype=object)


def computed(network, x):
    """What a network without roots gives for one input; exactly."""
    for part in network.layers:
        assert part.before is part.after is None
        x = matrix(part.weights) @ x
        if part.bias is not None:
            x = x + matrix(part.bias)[:, 0]
        if part.activation is not None:
            name, *parameters = part.activation.name.split(":")
            x = FUNCTIONS[name](*parameters)(x)
    return x.tolist()


def inputs(shape):
    return [exact(drawn(*shape, seed=seed)) for seed in (11, 12, 13)]


def check(network, shape, function):
    for x in inputs(shape):
        assert computed(network, x.ravel()) == np.ravel(function(x)).tolist()


def check_enclosed(network, shape, function):
    points = inputs(shape)
    found = evaluate(network, [x.ravel().tolist() for x in points], backend="arb")
    for row, x in enumerate(points):
        expected = np.ravel(function(x)).tolist()
        for low, true, high in zip(found.lower[-1][row], expected, found.upper[-1][row], strict=True):
            assert low <= true <= high
            assert high - low <= abs(true) * Fraction(1, 10**14)


# -- the fixtures, which Keras wrote ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp.keras", "mlp_functional.keras"])
def test_the_fixtures_are_the_network_of_the_npz_file(name):
    network, expected = load_model(FIXTURES / name), load_model(FIXTURES / "mlp.npz")
    assert network.content == expected.content
    assert network.activations == ("relu", "relu", None)
    assert [source.name for source in network.sources] == [name]
    assert network.shape == (6,)
    assert not network.folded


@pytest.mark.parametrize("name", FILES)
def test_the_fixtures_compute_what_keras_computed(name):
    """In float32: Keras errs by some 1e-7 of the largest number that occurs, and the enclosures by less than 1e-12."""
    known = {**np.load(FIXTURES / "expected.npz"), **np.load(FIXTURES / "expected_keras_graphs.npz")}
    x, y = (known[f"{Path(name).stem}_keras__{end}"].astype(np.float64) for end in "xy")
    softmax = "softmax" in name
    found = evaluate(load_model(FIXTURES / name, strip_softmax=softmax), x.reshape(len(x), -1), backend="arb")
    low, high = found.lower[-1], found.upper[-1]
    if softmax:
        low, high = (np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) for z in (low, high))
    most = max(abs(z).max() for z in (*found.lower, *found.upper))
    assert (high - low).max() < 1e-12 * most
    assert (low - 1e-6 * most < y).all()
    assert (y < high + 1e-6 * most).all()


# -- which weights, in which order -----------------------------------------------------------------------------------

KERNEL, BIAS = drawn(2, 3), drawn(3, seed=1)
SQUARE = [drawn(2, 2, seed=seed) for seed in range(3)]
CHAIN = {"dense": [SQUARE[0]], "dense_1": [SQUARE[1]], "dense_2": [SQUARE[2]]}


def chain(*names):
    return [layer("Dense", units=2, use_bias=False, activation="relu", name=name) for name in names]


def in_turn(x):
    for kernel in SQUARE:
        x = relu(x @ exact(kernel))
    return x


@pytest.mark.parametrize("form", [sequential, functional])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("dense_2", "dense", "dense_1"), ("c", "b", "a")])
def test_weights_belong_to_places_whatever_layers_are_called(read, form, names):
    check(read(chain(*names), CHAIN, form=form), (2,), in_turn)


def test_the_graph_says_the_order_whatever_the_list_says(tmp_path):
    plain = load_model(archived(tmp_path / "a.keras", functional(chain("a", "b", "c"), (2,)), CHAIN))
    document = functional(chain("a", "b", "c"), (2,))
    document["config"]["layers"] = [document["config"]["layers"][i] for i in (2, 0, 3, 1)]
    assert load_model(archived(tmp_path / "b.keras", document, CHAIN)).content == plain.content


def test_ends_may_be_listed_or_not(tmp_path):
    document = functional(chain("a", "b", "c"), (2,))
    for key in ("input_layers", "output_layers"):
        document["config"][key] = document["config"][key][0]
    check(load_model(archived(tmp_path / "m.keras", document, CHAIN)), (2,), in_turn)


def test_each_class_is_counted_by_itself(read):
    layers = [*chain("a"), layer("BatchNormalization", epsilon=0.25), *chain("b"), layer("ReLU"), *chain("c")]
    moments = [drawn(2), drawn(2, seed=1), drawn(2, seed=2), np.array([3.75, 3.75], dtype=np.float32)]
    network = read(layers, {**CHAIN, "batch_normalization": moments, "re_lu": []}, form=functional)
    gamma, beta, mean, _ = map(exact, moments)

    def function(x):
        x = gamma * (relu(x @ exact(SQUARE[0])) - mean) / 2 + beta
        return relu(relu(x @ exact(SQUARE[1])) @ exact(SQUARE[2]))

    check(network, (2,), function)


def test_a_group_of_many_layers_is_found(read):
    """Names of more than some 250 layers need a tree of two levels."""
    layers = [layer("Dropout") for _ in range(700)] + chain("a", "b", "c")
    groups = {f"dropout_{index}" if index else "dropout": [] for index in range(700)}
    check(read(layers, groups | CHAIN), (2,), in_turn)


# -- what files of real life have besides ----------------------------------------------------------------------------


def test_what_training_left_is_ignored(tmp_path):
    document = sequential([layer("Dropout"), *chain("a", "b", "c")], (2,))
    document["compile_config"] = {"optimizer": {"module": "mine", "class_name": "Best", "config": {"rate": 3}}}
    data = io.BytesIO(stored(CHAIN))
    with h5py.File(data, "r+") as file:
        file["optimizer/vars/0"] = np.array([np.nan])
        file["metrics/accuracy/vars/0"] = np.zeros(3)
        file["layers/dropout/seed_generator/vars/0"] = np.array([1, 2], dtype=np.uint32)
    check(load_model(archived(tmp_path / "m.keras", document, data.getvalue())), (2,), in_turn)


def test_shapes_that_layers_were_built_for_are_fine_if_they_fit(read):
    layers = chain("a", "b", "c")
    for data, batch in zip(layers, (None, 32, 1), strict=True):
        data["build_config"] = {"input_shape": [batch, 2]}
    check(read(layers, CHAIN), (2,), in_turn)


def test_a_policy_that_is_shared_is_one_policy(read):
    layers = chain("a", "b", "c")
    for data in layers:
        data["config"]["dtype"]["shared_object_id"] = 7
    check(read(layers, CHAIN), (2,), in_turn)


def test_a_number_that_nothing_shares_says_nothing(read):
    layers = chain("a", "b", "c")
    for index, data in enumerate(layers):
        data["shared_object_id"] = index
    check(read(layers, CHAIN), (2,), in_turn)


def test_a_function_that_is_shared_is_one_function(read):
    layers = chain("a", "b", "c")
    for data in layers:
        data["config"]["activation"] = {**layer("ReLU", name="mine"), "shared_object_id": 7}
    layers[1]["config"]["activation"]["config"]["dtype"]["shared_object_id"] = 8
    check(read(layers, {**CHAIN, "dense/activation": []}), (2,), in_turn)


@pytest.mark.parametrize("value", [None, False])
def test_layers_that_are_called_for_inference_are_read(tmp_path, value):
    document = functional([layer("Dropout"), *chain("a", "b", "c")], (2,))
    for data in document["config"]["layers"][1:]:
        data["inbound_nodes"][0]["kwargs"] = {"training": value, "mask": None}
    check(load_model(archived(tmp_path / "m.keras", document, CHAIN)), (2,), in_turn)


@pytest.mark.parametrize("version", ["3.0.0", "3.9.2", "3.15.1"])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_of_every_version_are_read(tmp_path, version, compression):
    metadata = json.dumps({"keras_version": version}).encode()
    document = sequential(chain("a", "b", "c"), (2,))
    path = archived(tmp_path / "m.keras", document, CHAIN, metadata=metadata, compression=compression)
    check(load_model(path), (2,), in_turn)


def test_normalisation_of_inputs_has_a_space_of_its_own(tmp_path):
    layers = [layer("Rescaling", scale=0.5, offset=-1), layer("Flatten"), layer("Dense", units=3)]
    path = archived(tmp_path / "m.keras", sequential(layers, (2,)), {"dense": [KERNEL, BIAS]})
    network = load_model(path, eps_space="normalised")
    assert network.eps_space == "normalised"
    assert matrix(network.layers[0].weights).tolist() == exact(KERNEL.T).tolist()
    check(load_model(path), (2,), lambda x: (x * Fraction(1, 2) - 1) @ exact(KERNEL) + exact(BIAS))
