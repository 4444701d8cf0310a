// What an operation on tensors in Keras' description of a model is called with: operands in their order, tensors among
// them, and options by name, in the dialects of Keras 2 and 3 (keras_operation.h).
//
// Used by one thread; the JSON outlives it.
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

std::string JsonTextOf(const Json& object, const char* key);  // "": none such

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
  // The option under one of its names; null: none, or null.
  const Json* Take(std::initializer_list<const char*> names);
  // The same, or the next operand that is no tensor.
  const Json* TakeOrOperand(std::initializer_list<const char*> names);
  // Errors: an option that nobody took and that says something.
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
