// Recurrent layers of cuDNN: one layer of GRU or LSTM over ragged rows, forwards or both ways.
#include <vector>

#include "dnn.hpp"

using namespace standin;

namespace {

enum { kLstm = 2, kGru = 3 };  // cudnnRNNMode_t

struct Layer {
  int mode, bias, directions, skips, type, input, hidden, layers, projected, padded;

  int gates() const { return mode == kLstm ? 4 : 3; }
  bool is_written_down() const {
    bool both_or_none = bias == 0 || bias == 2;
    return (mode == kLstm || mode == kGru) && both_or_none && !skips && layers == 1 && projected == hidden && padded;
  }

  // Where cuDNN keeps weights is its own affair. Here: of each direction W, then U, then the biases of both.
  size_t of_direction() const { return size_t(gates()) * hidden * (input + hidden + (bias ? 2 : 0)); }
  size_t matrix(int direction, int gate) const {
    size_t start = direction * of_direction();
    bool is_recurrent = gate >= gates();
    if (!is_recurrent) return start + size_t(gate) * hidden * input;
    return start + size_t(gates()) * hidden * input + size_t(gate - gates()) * hidden * hidden;
  }
  size_t bias_of(int direction, int gate) const {
    return direction * of_direction() + size_t(gates()) * hidden * (input + hidden) + size_t(gate) * hidden;
  }
};

struct Rows {
  int type, layout, longest, width;
  std::vector<int> lengths;
};

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// One direction's weights as float32, and a step.
struct Cell {
  Layer layer;
  std::vector<float> matrices, biases;  // [2 * gates, hidden, input or hidden], [2 * gates, hidden]

  Cell(const Layer& layer, int direction, const Numbers& weights) : layer(layer) {
    size_t begin = layer.matrix(direction, 0), end = layer.bias_of(direction, 0);
    for (size_t at = begin; at < end; at++) matrices.push_back(float(weights[at]));
    for (int at = 0; at < 2 * layer.gates() * layer.hidden; at++) biases.push_back(layer.bias ? float(weights[end + at]) : 0);
  }

  // W x or U h with its bias, of one gate: ids as in cudnnGetRNNWeightParams.
  float product(int gate, int unit, const std::vector<float>& vector) const {
    const float* row = &matrices[layer.matrix(0, gate) + unit * vector.size()];
    float sum = biases[size_t(gate) * layer.hidden + unit];
    for (size_t at = 0; at < vector.size(); at++) sum += row[at] * vector[at];
    return sum;
  }

  void step(const std::vector<float>& x, std::vector<float>& h, std::vector<float>& c) const {
    std::vector<float> old = h;
    int gates = layer.gates();
    for (int unit = 0; unit < layer.hidden; unit++) {
      auto both = [&](int gate) { return product(gate, unit, x) + product(gate + gates, unit, old); };
      if (layer.mode == kLstm) {  // 0 input, 1 forget, 2 new, 3 output
        c[unit] = sigmoid(both(1)) * c[unit] + sigmoid(both(0)) * std::tanh(both(2));
        h[unit] = sigmoid(both(3)) * std::tanh(c[unit]);
      } else {  // 0 reset, 1 update, 2 new
        float fresh = std::tanh(product(2, unit, x) + sigmoid(both(0)) * product(2 + gates, unit, old));
        float update = sigmoid(both(1));
        h[unit] = (1 - update) * fresh + update * old[unit];
      }
    }
  }
};

struct Forward {
  Layer layer;
  Rows rows;
  Numbers x, y, h_in, h_out, c_in, c_out, weights;

  std::vector<float> state(const Numbers& from, int direction, int row) const {
    std::vector<float> values(layer.hidden);
    for (int unit = 0; from && unit < layer.hidden; unit++) values[unit] = float(from[carried(direction, row) + unit]);
    return values;
  }
  size_t carried(int direction, int row) const { return (size_t(direction) * rows.lengths.size() + row) * layer.hidden; }

  void row_of(const Cell& cell, int direction, int row) const {
    std::vector<float> h = state(h_in, direction, row), c = state(c_in, direction, row), input(layer.input);
    int length = rows.lengths[row];
    for (int step = 0; step < rows.longest; step++) {
      int at = direction && step < length ? length - 1 - step : step;
      size_t place = size_t(at) * rows.lengths.size() + row;
      if (step < length) {
        for (int index = 0; index < layer.input; index++) input[index] = float(x[place * layer.input + index]);
        cell.step(input, h, c);
      }
      for (int unit = 0; unit < layer.hidden; unit++)
        y.set((place * layer.directions + direction) * layer.hidden + unit, step < length ? h[unit] : 0);
    }
    for (int unit = 0; unit < layer.hidden; unit++) {
      if (h_out) h_out.set(carried(direction, row) + unit, h[unit]);
      if (c_out) c_out.set(carried(direction, row) + unit, c[unit]);
    }
  }

  void operator()() const {
    for (int direction = 0; direction < layer.directions; direction++) {
      Cell cell(layer, direction, weights);
      for (size_t row = 0; row < rows.lengths.size(); row++) row_of(cell, direction, int(row));
    }
  }
};

}  // namespace

extern "C" {

int cudnnSetRNNDescriptor_v8(Layer* layer, int, int mode, int bias, int directions, int skips, int type, int, int, int input, int hidden,
                             int projected, int layers, void*, unsigned flags) {
  *layer = {mode, bias, directions + 1, skips, type, input, hidden, layers, projected, int(flags & 1)};
  return 0;
}
int cudnnCreateRNNDataDescriptor(Rows** rows) {
  *rows = new Rows{};
  return 0;
}
int cudnnDestroyRNNDataDescriptor(Rows* rows) {
  delete rows;
  return 0;
}
// What fills the padding is 0 here.
int cudnnSetRNNDataDescriptor(Rows* rows, int type, int layout, int longest, int batch, int width, const int* lengths, const void*) {
  *rows = {type, layout, longest, width, {lengths, lengths + batch}};
  return 0;
}
int cudnnGetRNNTempSpaceSizes(Handle*, Layer*, int, Rows*, size_t* work, size_t* reserve) {
  *work = 1024;
  if (reserve) *reserve = 1024;
  return 0;
}
int cudnnGetRNNWeightParams(Handle*, const Layer* layer, int direction, size_t, const char* weights, int gate, Tensor* matrix_of, const void** matrix,
                            Tensor* bias_of, const void** bias) {
  int columns = gate < layer->gates() ? layer->input : layer->hidden;
  *matrix_of = {layer->type, 3, {1, layer->hidden, columns}, {layer->hidden * columns, columns, 1}};
  *bias_of = {layer->type, 3, {1, layer->hidden, 1}, {layer->hidden, 1, 1}};
  size_t bytes = size_of(kind_of_data(layer->type));
  *matrix = weights + layer->matrix(direction, gate) * bytes;
  *bias = layer->bias ? weights + layer->bias_of(direction, gate) * bytes : nullptr;
  return 0;
}

int cudnnRNNForward(Handle* handle, const Layer* layer, int trains, const int*, const Rows* x_of, const void* x, const Rows* y_of, void* y, Tensor*,
                    const void* h_in, void* h_out, Tensor*, const void* c_in, void* c_out, size_t, const void* weights, size_t, void*, size_t,
                    void*) {
  bool fits = !trains && x_of->layout == 0 && y_of->layout == 0 && layer->is_written_down() && x_of->type == layer->type;
  if (!fits) {
    standin_unemulated(handle->stream, "cudnnRNNForward");
    return 0;
  }
  Kind kind = kind_of_data(layer->type);
  Forward work{*layer, *x_of, {x, kind}, {y, kind}, {h_in, kind}, {h_out, kind}, {c_in, kind}, {c_out, kind}, {weights, kind}};
  return issue(handle, layer->mode == kLstm ? "LSTM" : "GRU", work);
}

}  // extern "C"
