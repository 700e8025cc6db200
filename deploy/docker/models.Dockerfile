# syntax=docker/dockerfile:1
# A model repository as an image, which Kubernetes unpacks for the server. From the root, after `make models`:
#   docker build -f deploy/docker/models.Dockerfile -t weft-models:1 .
# deploy/README.md says how to give a newer one.
ARG BUSYBOX_IMAGE=busybox:1.37@sha256:9db7b59979c38555a39def84a31fb98b5296952f9e3afd4f6f11f05b07adfab0
FROM ${BUSYBOX_IMAGE}
# In digits: Debian's buildah does not read letters. Files are executable then, which harms nobody.
COPY --chmod=0755 build/models /models
USER 10001:10001
# Copies the repository into the volume mounted at /repository, and ends.
ENTRYPOINT ["cp", "-R", "/models/.", "/repository/"]
