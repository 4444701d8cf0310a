// KerasArguments: the arguments of an operation on tensors in Keras' description of a model: operands in order, some of
// them tensors, and options by name, in the dialects of Keras 2 and 3 (keras_operation.h).
//
// Used by one thread; the JSON must outlive it.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/formats/keras_operation.h"

namespace cairn {

// Numbers row by row.
struct KerasConstant {
  std::vector<float> numbers;
  std::vector<int32_t> shape;
};

// A number, a list, or Keras 3's "__numpy__" and "__tensor__".
std::optional<KerasConstant> ReadKerasConstant(const Json& value);

std::string JsonTextOf(const Json& object, const char* key);  // "": no such text

class KerasArguments {
 public:
  KerasArguments(const KerasOperationEntry& entry, const KerasFirstCalls& firsts) : entry_(entry), firsts_(firsts) {}

  absl::Status Read();

  bool keras2() const { return entry_.type == "TFOpLambda" || entry_.type == "SlicingOpLambda"; }
  std::string Function() const;  // "TrueDivide", "math.truediv"
  // `layer "x" (TrueDivide): what`
  absl::Status Bad(absl::string_view what) const;

  const std::vector<std::string>& tensors() const { return tensors_; }
  const std::vector<const Json*>& operands() const { return operands_; }  // null: a tensor
  // The option with one of these names; null: there is none, or its value is null.
  const Json* Take(std::initializer_list<const char*> names);
  // The same, or the next operand that is not a tensor.
  const Json* TakeOrOperand(std::initializer_list<const char*> names);
  // Reads integers, one or a list. null: -1.
  absl::StatusOr<std::vector<int64_t>> Whole(const Json* value, const char* what) const;
  // Reads axes, which Keras counts from 1 after the batch, of a tensor of `rank` axes without it.
  absl::StatusOr<std::vector<int32_t>> Axes(const Json* value, int rank, const char* what = "axis") const;
  // Errors: an option with a value was never taken.
  absl::Status Finish() const;

 private:
  absl::Status AddTensor(const Json& history);
  absl::Status AddOperand(const Json& value);
  absl::StatusOr<const Json*> ReadPositional();  // returns the keywords, or null

  const KerasOperationEntry& entry_;
  const KerasFirstCalls& firsts_;
  std::vector<const Json*> operands_;
  std::vector<std::string> tensors_;
  std::map<std::string, const Json*> options_;
};

}  // namespace cairn
