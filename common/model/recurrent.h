// Recurrence: the computation of a recurrent layer, in one form for SimpleRNN, LSTM and GRU: one recurrence, or, for a
// Bidirectional, two whose outputs are merged. Backends read this instead of the layers' messages.
//
// For each example a recurrence iterates over the steps x of its input, with the state h (and c for an LSTM) of the
// previous step. W, U, b are kernel, recurrent_kernel and bias, f is `activation`, s is `recurrent_activation`:
//   SimpleRNN  h' = f(x W + b + h U)
//   LSTM       i, g, a, o = x W + b + h U in four parts; c' = s(g) c + s(i) f(a); h' = s(o) f(c')
//   GRU        z, r, a in three parts; h' = s(z) h + (1 - s(z)) f(a), where z and r are x W + b + h U, and a is
//              x W + b + (s(r) h) U, or, with reset_after, x W + b[0] + s(r) (h U + b[1])
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

struct Recurrence {
  RecurrentCell cell = RecurrentCell::kSimple;
  int64_t units = 0;
  int64_t units_before = 0;  // in the second recurrence, the units of the first one
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
};

// How the outputs of two recurrences are merged. kOne: there is only one.
enum class RecurrentMerge { kOne, kConcat, kSum, kMultiply, kAverage };

struct RecurrentLayer {
  std::vector<Recurrence> recurrences;  // one or two
  RecurrentMerge merge = RecurrentMerge::kOne;
};

bool IsRecurrent(LayerKind kind);  // SimpleRNN, LSTM, GRU, Bidirectional
// layer: a checked layer of one of these kinds. The result has no variables and inputs yet.
std::vector<Recurrence> RecurrencesOf(const v1::Layer& layer);
// Whether it is a recurrent layer whose outputs are followed by their states (LSTM.return_cell).
bool GivesCells(const Node& node);
// node: of a built graph, and of a kind for which IsRecurrent is true.
RecurrentLayer RecurrentLayerOf(const Graph& graph, const Node& node);

// Whether a recurrent layer can have the activation: it must be elementwise.
bool IsElementwise(v1::Activation activation);
float RecurrentAlpha(v1::Activation activation);  // as DefaultAlpha (activation_numbers.h)

// Where the numbers of a recurrence's masks begin in the layer's dropout stream (worker/backend/dropout.h): those of
// the mask of the input, [examples, features], or of the state, [examples, units]. A multiple of 4.
int64_t RecurrentMaskBegin(const Recurrence& r, bool of_state, int64_t examples, int64_t features);

// Finds the part of the variable that is initialized to ones: that of the forget gate in an LSTM's bias
// (unit_forget_bias; Jozefowicz et al. 2015). Returns false if there is none.
bool FindForgetBias(const Graph& graph, const Variable& variable, int64_t* begin, int64_t* end);

}  // namespace cairn
