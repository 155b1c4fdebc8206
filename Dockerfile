# Stage 1 builds the wheel and its environment; stage 2 carries only what runs.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/toolscout \
 && /opt/toolscout/bin/pip install --no-cache-dir --upgrade pip \
 && /opt/toolscout/bin/pip install --no-cache-dir ".[local,postgres]"

FROM python:3.12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends git \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 toolscout \
 && mkdir /data && chown toolscout /data
COPY --from=build /opt/toolscout /opt/toolscout
ENV PATH="/opt/toolscout/bin:$PATH" TOOLSCOUT_HOME=/data PYTHONUNBUFFERED=1
USER toolscout
VOLUME /data
EXPOSE 8080
# No model is in the image; one goes into the volume: docker run --rm -v toolscout:/data toolscout model pull smollm2-135m
# Beyond loopback a token is required: docker run -e TOOLSCOUT_AUTH_TOKEN=... -p 8080:8080 toolscout
HEALTHCHECK --interval=30s --timeout=5s --start-period=180s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["toolscout"]
CMD ["serve", "--http", "0.0.0.0:8080"]
