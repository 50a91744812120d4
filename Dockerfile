# Three images from one file, each with one static binary, the CA bundle and nothing else:
#   docker build --target keypostd -t keypostd .      docker build --target keypost -t keypost .
# For another architecture add --platform linux/arm64: the compiler crosses over, nothing is emulated.
# For Go's FIPS 140-3 module, in its certified version and switched on, add --build-arg FIPS=1.
ARG BUILDER=golang:1.26
ARG BASE=scratch

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG FIPS=0
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The version comes from Git. A linked work tree has a .git that is a file and leads nowhere here.
RUN if [ "$FIPS" = 1 ]; then export GOFIPS140=v1.0.0; fi; [ -d .git ] || export GOFLAGS=-buildvcs=false; \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags grpcnotrace -ldflags "-s -w" -o /out/ ./cmd/keypost ./cmd/keypostd ./cmd/keypost-signer

FROM ${BASE} AS base
ARG VERSION=devel
ARG REVISION=unknown
LABEL org.opencontainers.image.source=https://github.com/keypost/keypost \
      org.opencontainers.image.documentation=https://github.com/keypost/keypost/blob/main/charts/keypost/README.md \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# Any uid will do, such as OpenShift's: nothing in the image needs to be written.
USER 65532:65532

FROM base AS keypostd
LABEL org.opencontainers.image.title=keypostd \
      org.opencontainers.image.description="Publishes the OIDC documents of Kubernetes and OpenShift clusters"
COPY --from=build /out/keypostd /keypostd
EXPOSE 8443
ENTRYPOINT ["/keypostd"]
CMD ["--config", "/etc/keypost/keypostd.yaml"]

# It reads private keys that root owns, and its socket is for a kube-apiserver that runs as root.
FROM base AS keypost-signer
LABEL org.opencontainers.image.title=keypost-signer \
      org.opencontainers.image.description="Signs service account tokens for the kube-apiserver beside it"
COPY --from=build /out/keypost-signer /keypost-signer
USER 0:0
ENTRYPOINT ["/keypost-signer"]
CMD ["--config", "/etc/keypost-signer/signer.yaml"]

FROM base AS keypost
LABEL org.opencontainers.image.title=keypost \
      org.opencontainers.image.description="Writes key sets, mirrors stores, verifies issuers"
COPY --from=build /out/keypost /keypost
ENTRYPOINT ["/keypost"]
