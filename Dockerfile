# Builds Flare and puts the one binary into a small image that runs as nobody in particular.
#
#   docker build -t flare .
#   docker run -p 8080:8080 -v flare-data:/data -e FLARE_SECURITY_TOKENS=… flare

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# Registry and target are caches of the builder: a change to the sources compiles only what it touches.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked --package flare && install -s target/release/flare /flare

FROM debian:bookworm-slim
RUN install -d -o 10001 -g 10001 /data
COPY --from=build /flare /usr/local/bin/flare
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
# Requests from outside the container need a token: FLARE_SECURITY_TOKENS, or one made by `flare token create`.
ENV FLARE_HTTP_ADDR=:8080 FLARE_REPOSITORY_PATH=/data
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["flare", "status"]
ENTRYPOINT ["flare"]
CMD ["start"]
