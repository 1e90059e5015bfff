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
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
ARG TORCH_INDEX=
ARG EXTRAS=train,pretrained
LABEL org.opencontainers.image.title="retinabench" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/retinabench/retinabench"
WORKDIR /tmp/install
COPY constraints.txt ./
COPY --from=build /wheels ./
# PyTorch first where an index is given: the same pin, other wheels. Without extras there is none to install.
RUN if [ -n "$EXTRAS" ] && [ -n "$TORCH_INDEX" ]; then \
        pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' constraints.txt)"; \
    fi \
    && pip install --no-cache-dir --constraint constraints.txt "$(ls ./*.whl)${EXTRAS:+[$EXTRAS]}" \
    && rm -r /tmp/install/*
RUN useradd --create-home --uid 1000 retinabench
USER 1000
WORKDIR /work
ENV MPLCONFIGDIR=/tmp/matplotlib PYTHONUNBUFFERED=1
ENTRYPOINT ["retinabench"]
CMD ["--help"]
