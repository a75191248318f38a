"""Models: which there are, which one serves, and predictions of rows."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Path, Response

from easyrec.errors import BundleError, SchemaError
from serving.api.dependencies import ServiceDependency, json_response
from serving.api.problems import ProblemError, documented
from serving.api.schemas import ModelRef, Models, PredictBody, ShadowBody
from serving.models.served import ServedModel

router = APIRouter(prefix="/v1/models", tags=["models"], responses=documented(404, 422, 503))

Name = Annotated[str, Path(min_length=1, max_length=256)]


@router.get("", response_model=Models)
async def list_models(service: ServiceDependency) -> Response:
    """All models and versions."""
    versions = service.hub.versions()
    names = ("name", "version", "state", "runtime")
    return json_response({"models": [{name: getattr(info, name) for name in names} for info in versions]})


@router.post("/{name}/versions/{version}:activate", response_model=ModelRef, responses=documented(404))
async def activate(name: Name, version: Name, service: ServiceDependency) -> Response:
    """Make a loaded version serve; requests under way end with the one they began with."""
    try:
        model = await service.call(service.decisions.activate, name, version)
    except BundleError as error:
        raise ProblemError(404, str(error)) from error
    return json_response({"name": model.name, "version": model.version})


@router.post("/{name}/versions/{version}:shadow", status_code=204, responses=documented(404))
async def shadow(name: Name, version: Name, body: ShadowBody, service: ServiceDependency) -> Response:
    """Let a loaded version score a share of the requests beside the active one, for the log only."""
    try:
        await service.call(service.decisions.shadow, name, version, body.percent)
    except BundleError as error:
        raise ProblemError(404, str(error)) from error
    return Response(status_code=204)


@router.post("/{name}:rollback", response_model=ModelRef, responses=documented(404, 409))
async def rollback(name: Name, service: ServiceDependency) -> Response:
    """Make the previous version serve again."""
    try:
        service.hub.active(name)
    except BundleError as error:
        raise ProblemError(404, str(error)) from error
    try:
        model = await service.call(service.decisions.rollback, name)
    except BundleError as error:
        raise ProblemError(409, str(error)) from error
    return json_response({"name": model.name, "version": model.version})


@router.post("/{name}:predict", responses=documented(404))
async def predict(name: Name, body: PredictBody, service: ServiceDependency) -> Response:
    """Predict rows, in the shape of TensorFlow Serving.

    `{"instances": [{"user_id": 1, ...}, ...]}` gives `{"predictions": [...]}`, `{"inputs": {"user_id": [1, ...]}}`
    gives `{"outputs": ...}`; a model of one task gives its values, others a value for each task.
    """
    try:
        model = service.hub.active(name)
    except BundleError as error:
        raise ProblemError(404, str(error)) from error
    if (body.instances is None) == (body.inputs is None):
        raise ProblemError(422, "give either `instances` or `inputs`")
    if body.signature_name not in (None, "", "serving_default"):
        raise ProblemError(422, "the only signature here is serving_default")
    return json_response(await service.call(_predict, model, body))


def _predict(model: ServedModel, body: PredictBody) -> dict[str, Any]:
    table = rows_table(model, body)
    values = {task: array.tolist() for task, array in model.predict(table).items()}
    single = next(iter(values.values())) if len(values) == 1 else None
    if body.instances is None:
        return {"outputs": values if single is None else single}
    if single is not None:
        return {"predictions": single}
    rows = zip(*values.values(), strict=True)
    return {"predictions": [dict(zip(values, row, strict=True)) for row in rows]}


def rows_table(model: ServedModel, body: PredictBody) -> pa.Table:
    """The rows of a request; columns that it lacks are missing, those that the model does not read are passed over.

    Raises:
        SchemaError: Columns have different lengths, or values that no column can hold.
    """
    wanted = list(dict.fromkeys(entry.column for entry in model.manifest.inputs))
    if body.instances is not None:
        size = len(body.instances)
        columns = {name: [row.get(name) for row in body.instances] for name in wanted}
    else:
        inputs = body.inputs or {}
        lengths = {name: len(values) for name, values in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise SchemaError(f"inputs: all columns must have the same length, got {lengths}")
        size = next(iter(lengths.values()), 0)
        columns = {name: inputs.get(name, [None] * size) for name in wanted}
    if size == 0:
        raise SchemaError("there are no rows to predict")
    try:
        return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaError(f"the rows cannot be used: {error}") from error
