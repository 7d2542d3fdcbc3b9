# The gateway, the comparison job and the dashboard: one image, without torch.
# Build it from the repository's root: docker build --file deploy/gateway.Dockerfile --tag crossfade-gateway:0.1.0 .
ARG PYTHON_TAG=3.11.13-slim-bookworm

FROM python:${PYTHON_TAG} AS build
WORKDIR /src
# Without pip inside: what serves requests needs no installer.
RUN python -m venv --without-pip /opt/crossfade
COPY pyproject.toml README.md LICENSE ./
COPY requirements/ requirements/
COPY crossfade/ crossfade/
COPY gateway/ gateway/
COPY shadow/ shadow/
COPY compare/ compare/
COPY onprem_backend/ onprem_backend/
RUN pip --python /opt/crossfade/bin/python install --no-cache-dir --constraint requirements/constraints.txt ".[compare]"

FROM python:${PYTHON_TAG}
# Numbers, not names, so that Kubernetes can verify that the user is not root. A new volume takes the owner of the
# folder that it covers.
RUN groupadd --gid 10001 crossfade \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin crossfade \
    && install --directory --owner=10001 --group=10001 --mode=0750 /var/lib/crossfade
COPY --from=build /opt/crossfade /opt/crossfade
# The root file system may be read-only: /tmp and /var/lib/crossfade are all that is ever written.
ENV PATH=/opt/crossfade/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/crossfade
VOLUME ["/var/lib/crossfade"]
EXPOSE 8080 8088
# An empty ProxyHandler, since an HTTP_PROXY in the environment would send even this request out.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:8080/-/live', timeout=2)"]
ENTRYPOINT ["crossfade"]
CMD ["gateway", "--config", "/etc/crossfade/crossfade.yaml"]
