# retinabench in a container, with PyTorch. Not built by CI.
#
#   docker build -t retinabench:cuda .                                GPUs: PyTorch's default wheels for Linux hold the CUDA libraries
#   docker build -t retinabench --build-arg TORCH_INDEX=URL .         CPUs: the index of CPU wheels that PyTorch's guide names
#   docker build -t retinabench:scores --build-arg EXTRAS= .          scores and reports alone, without PyTorch
#
#   docker run --rm -v "$PWD:/work" retinabench score predictions.csv --json scores.json
#   docker run --rm --gpus all --shm-size 8g -v "$PWD:/work" retinabench:cuda train --data data/idrid --task in_domain --method map
#
# With --gpus the host needs NVIDIA's driver and container toolkit. Files are written as user 1000: add `--user "$(id -u):$(id -g)"`.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS build
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY src ./src
COPY locks ./locks
RUN pip install --no-cache-dir --require-hashes --requirement locks/scores.txt \
    && pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
ARG TORCH_INDEX=
ARG EXTRAS=train,pretrained
LABEL org.opencontainers.image.title="retinabench" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/retinabench/retinabench"
WORKDIR /tmp/install
COPY locks ./
COPY --from=build /wheels ./
# Everything is installed by hash. PyTorch comes first where an index is given: the same pin, and wheels with hashes of their own.
RUN if [ -n "$EXTRAS" ] && [ -n "$TORCH_INDEX" ]; then \
        pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX" "$(grep --only-matching '^torch==[^ ]*' train.txt)"; \
    fi \
    && pip install --no-cache-dir --require-hashes --requirement "$([ -n "$EXTRAS" ] && echo train || echo scores).txt" \
    && pip install --no-cache-dir --no-deps ./*.whl \
    && rm -r /tmp/install/*
RUN useradd --create-home --uid 1000 retinabench
USER 1000
WORKDIR /work
ENV MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
ENTRYPOINT ["retinabench"]
CMD ["--help"]
