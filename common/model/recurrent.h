// Recurrence: the computation of a recurrent layer, in one form for SimpleRNN, LSTM, GRU and ConvLSTM: one recurrence,
// or, for a Bidirectional, two whose outputs are merged. Backends read this instead of the layers' messages.
//
// For each example a recurrence iterates over the steps x of its input, with the state h (and c for an LSTM) of the
// previous step. W, U, b are kernel, recurrent_kernel and bias, f is `activation`, s is `recurrent_activation`:
//   SimpleRNN  h' = f(x W + b + h U)
//   LSTM       i, g, a, o = x W + b + h U in four parts; c' = s(g) c + s(i) f(a); h' = s(o) f(c')
//   GRU        z, r, a in three parts; h' = s(z) h + (1 - s(z)) f(a), where z and r are x W + b + h U, and a is
//              x W + b + (s(r) h) U, or, with reset_after, x W + b[0] + s(r) (h U + b[1])
// A ConvLSTM (Shi et al. 2015) is an LSTM whose products x W and h U are convolutions over the sides of a step, the
// first with the layer's window, the second with strides of 1 and SAME; all else is done at each position by itself.
// Dropout multiplies x, and the h inside the products, by masks that are the same for all steps and gates (Gal &
// Ghahramani 2016). A masked step leaves h and c unchanged.
//
// Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/model/graph.h"

namespace cairn {

enum class RecurrentCell { kSimple, kLstm, kGru };

// What the products of a ConvLSTM are convolutions over.
struct RecurrentWindows {
  int axes = 0;         // 1 .. 3; 0: the products are those of matrices
  Window input, state;  // of a step of the input, and of the state
  Shape sides;          // of a state, which is [sides.., units]; of another layer none
  int64_t positions() const { return NumElements(sides); }
};

struct Recurrence {
  RecurrentCell cell = RecurrentCell::kSimple;  // of a ConvLSTM kLstm
  int64_t units = 0;                            // of a ConvLSTM its filters
  RecurrentWindows windows;
  int64_t state_before = 0;  // in the second recurrence, the numbers of a state of the first one
  v1::Activation activation = v1::LINEAR, recurrent_activation = v1::LINEAR;
  bool reset_after = false;  // GRU
  float dropout = 0, recurrent_dropout = 0;
  bool has_bias = false;
  bool return_sequences = false;
  bool return_cell = false;   // LSTM: each output is followed by the state behind its step, h and c
  bool go_backwards = false;  // iterates from the last step of the input to the first
  // With return_sequences: the outputs are in reverse order of computation.
  bool turned = false;
  // If true, the output of a masked step is 0. If false, it is that of the step computed before it, or 0 if there is
  // none.
  bool zero_masked = false;
  int kernel = -1, recurrent_kernel = -1, bias = -1;  // indices into Graph::variables(); bias -1: none
  // Index in Node.inputs of the initial state h, which c follows; -1: the initial state is zero.
  int state_input = -1;

  int64_t gates() const { return cell == RecurrentCell::kSimple ? 1 : cell == RecurrentCell::kLstm ? 4 : 3; }
  int64_t width() const { return return_cell ? 3 * units : units; }  // of an output
  int64_t states() const { return cell == RecurrentCell::kLstm ? 2 : 1; }
  int64_t state_numbers() const { return windows.positions() * units; }  // of an example's h, or c
};

// How the outputs of two recurrences are merged. kOne: there is only one.
enum class RecurrentMerge { kOne, kConcat, kSum, kMultiply, kAverage };

struct RecurrentLayer {
  std::vector<Recurrence> recurrences;  // one or two
  RecurrentMerge merge = RecurrentMerge::kOne;
};

bool IsRecurrent(LayerKind kind);  // SimpleRNN, LSTM, GRU, ConvLSTM1D .. ConvLSTM3D, Bidirectional
// Null, or 0: the layer is no ConvLSTM.
const v1::ConvLSTM* ConvLstmOf(const v1::Layer& layer);
v1::ConvLSTM* MutableConvLstmOf(v1::Layer* layer);
int ConvLstmAxes(const v1::Layer& layer);
// The windows of a ConvLSTM whose numbers are checked, on a step [sides.., channels] that they fit.
RecurrentWindows ConvLstmWindows(const v1::ConvLSTM& layer, int axes, const Shape& step);
// layer: a checked layer of a recurrent kind. The result has no variables, no inputs, and of a ConvLSTM no windows yet.
std::vector<Recurrence> RecurrencesOf(const v1::Layer& layer);
// The same with the windows. input: the shape of the sequence, without the batch axis.
std::vector<Recurrence> RecurrencesOn(const Shape& input, const v1::Layer& layer);
// Whether it is a recurrent layer whose outputs are followed by their states (return_cell of LSTM and ConvLSTM).
bool GivesCells(const Node& node);
// node: of a built graph, and of a kind for which IsRecurrent is true.
RecurrentLayer RecurrentLayerOf(const Graph& graph, const Node& node);

// Whether a recurrent layer can have the activation: it must be elementwise.
bool IsElementwise(v1::Activation activation);
float RecurrentAlpha(v1::Activation activation);  // as DefaultAlpha (activation_numbers.h)

// Where the numbers of a recurrence's masks begin in the layer's dropout stream (worker/backend/dropout.h): those of
// the mask of the input, [examples, features], or of the state, [examples, state_numbers()]. features: the numbers of a
// step of the input. A multiple of 4.
int64_t RecurrentMaskBegin(const Recurrence& r, bool of_state, int64_t examples, int64_t features);

// Finds the part of the variable that is initialized to ones: that of the forget gate in an LSTM's bias
// (unit_forget_bias; Jozefowicz et al. 2015). Returns false if there is none.
bool FindForgetBias(const Graph& graph, const Variable& variable, int64_t* begin, int64_t* end);

}  // namespace cairn
