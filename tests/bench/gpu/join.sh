# Unpacks what `make pack-gpu` packed. In the clone's folder: . build/gpu-pack/join.sh [FOLDER]
# Python then finds Weft and what it needs, and ONNX Runtime the CUDA libraries of torch. FOLDER is /tmp/weft-gpu if none is named.
packed=$PWD/build/gpu-pack
folder=${1:-/tmp/weft-gpu}
if [ ! -d "$folder/site" ]; then
    # What breaks off is no site.
    rm -rf "$folder/part" && mkdir -p "$folder/part" || return 1
    cat "$packed"/site.[0-9]* | tar -xJ -C "$folder/part" && mv "$folder/part/site" "$folder/site" || return 1
fi
# torch's own folder says where its CUDA libraries lie.
packages=$(python3 -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])') || return 1
libraries=$(find "$packages/nvidia" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
export PYTHONPATH="$folder/site:$PWD/proto:$PWD/server:$PWD/export:$PWD/client"
export LD_LIBRARY_PATH="$libraries:$LD_LIBRARY_PATH"
