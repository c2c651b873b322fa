# graphfix and the real DirectML provider under Wine, for CI: docker build -t graphfix .
# Chroot and mount need a right that a container lacks by default:
#   docker run --rm --cap-add SYS_ADMIN -v "$PWD:/models" graphfix \
#     verify model.onnx model.fixed.onnx --ep dml
FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends make python3 python3-pip python3-venv unzip \
        mmdebstrap ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY . /graphfix
WORKDIR /graphfix
RUN apt-get update && make dml && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir .
ENV GRAPHFIX_DML_HOME=/graphfix/build/dml PATH=/opt/venv/bin:$PATH
WORKDIR /models
ENTRYPOINT ["graphfix"]
