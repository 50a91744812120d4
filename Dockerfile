# Two images from one file, each with one static binary, the CA bundle and nothing else:
#   docker build --target keypostd -t keypostd .      docker build --target keypost -t keypost .
ARG BUILDER=golang:1.26
FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /out/ ./cmd/keypost ./cmd/keypostd

FROM scratch AS keypostd
COPY --from=build /out/keypostd /keypostd
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
EXPOSE 8443
ENTRYPOINT ["/keypostd"]
CMD ["--config", "/etc/keypost/keypostd.yaml"]

FROM scratch AS keypost
COPY --from=build /out/keypost /keypost
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/keypost"]
