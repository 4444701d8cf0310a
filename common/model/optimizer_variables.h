// How optimizers treat single variables: which ones they update as a whole, and which tensors they keep for each.
//
// Lamb, Adafactor and Muon update a number with norms, means or products over the whole variable. Such a variable lies
// in one partition (common/model/partition_cut.h), so that partitioning changes no bit.
//
// Pure functions and constants; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/name_pattern.h"

namespace cairn {

// Which variables the optimizer updates with the help of all their numbers: every trainable one for Lamb and
// Adafactor, the matrices that Muon makes orthogonal. For many variables; the optimizer must be resolved, and outlive
// this.
class WholeUpdates {
 public:
  explicit WholeUpdates(const v1::Optimizer& optimizer);
  bool Of(const Variable& variable) const;

 private:
  const v1::Optimizer& optimizer_;
  std::vector<NamePattern> excluded_;  // of Muon
};
// The same, of one variable.
bool UpdatedAsAWhole(const v1::Optimizer& optimizer, const Variable& variable);

// Muon's exclude_layers. Errors: INVALID_ARGUMENT, `optimizer.muon.exclude_layers: ...`.
absl::StatusOr<std::vector<NamePattern>> ExcludedLayersOf(const v1::Muon& muon);

// Errors: INVALID_ARGUMENT, `optimizer.muon: dense/kernel [4096,4096] ...`: a matrix that is too large; an expression
// of exclude_layers that is in no name.
absl::Status CheckVariablesOf(const v1::Optimizer& optimizer, const Graph& graph);

// A tensor of a checkpoint's optimizer.safetensors: numbers of one slot.
struct SlotTensor {
  std::string name;    // as Keras': "momentum", "r"
  int slot = 0;        // its index in SlotNames (common/model/optimizer_slots.h)
  int64_t offset = 0;  // from the variable's first number
  Shape shape;
};
// What is kept of a trainable variable. A slot is a tensor of the variable's shape, except for Adafactor: of a variable
// of two axes or more it keeps the mean squares of rows, `r`, and of columns, `c`, one after the other in the slot's
// first numbers. Where the last two axes have one row (column), `r` (`c`) follows from the other one and is left out.
std::vector<SlotTensor> SlotTensorsOf(const v1::Optimizer& optimizer, const Variable& variable);

// The last two axes of a variable of two axes or more, and how many such matrices it has.
struct Matrices {
  int64_t count = 1, rows = 1, columns = 1;
  bool keeps_rows() const { return rows > 1; }                     // Adafactor: r is kept
  bool keeps_columns() const { return columns > 1 || rows == 1; }  // c is kept
};
Matrices MatricesOf(const Shape& shape);

}  // namespace cairn
