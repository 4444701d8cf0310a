#include "common/model/operation_operands.h"

namespace cairn {
namespace {

template <typename Numbers, typename Sides>
OperationOperand ConstantOf(const Numbers& numbers, const Sides& sides) {
  return {.input = -1,
          .numbers = absl::MakeConstSpan(numbers.data(), static_cast<size_t>(numbers.size())),
          .shape = Shape(sides.begin(), sides.end())};
}

}  // namespace

std::vector<OperationOperand> OperandsOf(const v1::Operation& operation, size_t inputs) {
  std::vector<OperationOperand> operands;
  for (size_t i = 0; i < inputs; ++i) operands.push_back({.input = static_cast<int>(i)});
  if (operation.constant().empty()) return operands;
  const OperationOperand constant = ConstantOf(operation.constant(), operation.constant_shape());
  const auto first = operands.begin() + (operation.kind() == v1::Operation::WHERE ? 1 : 0);
  operands.insert(operation.constant_first() ? first : operands.end(), constant);
  if (!operation.other_constant().empty()) {
    operands.push_back(ConstantOf(operation.other_constant(), operation.other_shape()));
  }
  return operands;
}

}  // namespace cairn
