// Layers of categories. They have no backward pass.
#include "common/model/category_function.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {
namespace {

absl::Status Categorize(const Pass& p) {
  std::vector<const double*> x;
  for (size_t k = 0; k < p.inputs(); ++k) x.push_back(p.x(k).data());
  return CategoryFunction(p.graph(), p.node()).Forward<double>(p.examples(), x, p.y().data());
}

void NoGradient(const Pass&) {}

constexpr Layer kLayers[] = {
    {LayerKind::kDiscretization, Categorize, NoGradient}, {LayerKind::kCategoryEncoding, Categorize, NoGradient},
    {LayerKind::kHashing, Categorize, NoGradient},        {LayerKind::kHashedCrossing, Categorize, NoGradient},
    {LayerKind::kIntegerLookup, Categorize, NoGradient},
};

}  // namespace

absl::Span<const Layer> CategoryLayers() { return kLayers; }

}  // namespace cairn::reference
