#include "common/data/text_dataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/data/text_store.h"
#include "common/data/wrapped_dataset.h"
#include "common/model/model_inputs.h"
#include "common/model/text_function.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

// Where the values of an input lie in an example as the data has it.
struct Values {
  int64_t begin, size;
  bool texts;
};

Values ValuesOf(const Node& input) { return {input.input_offset, NumElements(input.output), OfTexts(input)}; }

// An input of the computed graph: numbers that are taken over, or a layer's.
struct Piece {
  std::vector<Values> from;
  int64_t to;
  std::unique_ptr<const TextFunction> function;  // null: taken over
};

class TextDataset : public WrappedDataset {
 public:
  TextDataset(std::shared_ptr<const Dataset> examples, const Graph& graph) : WrappedDataset(std::move(examples)) {
    const Graph computed = ComputedGraph(graph);
    size_ = ModelInputSize(computed);
    for (const int id : computed.inputs()) {
      const Node& input = computed.nodes()[static_cast<size_t>(id)];
      const auto node = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                     [&](const Node& other) { return other.name == input.name; });
      Piece& piece = pieces_.emplace_back();
      piece.to = input.input_offset;
      if (OfTexts(*node)) piece.function = std::make_unique<TextFunction>(*node);
      if (!OfTexts(*node)) piece.from.push_back(ValuesOf(*node));
      for (const int from : node->inputs) piece.from.push_back(ValuesOf(graph.nodes()[static_cast<size_t>(from)]));
    }
  }

  int64_t example_size() const override { return size_; }

  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    static thread_local std::vector<float> given;
    given.resize(static_cast<size_t>(examples().example_size()));
    CAIRN_RETURN_IF_ERROR(examples().Read(split, index, given.data(), label));
    for (const Piece& piece : pieces_) {
      if (piece.function == nullptr) {
        std::copy_n(given.data() + piece.from[0].begin, piece.from[0].size, example + piece.to);
        continue;
      }
      std::vector<TextOrNumber> values;
      for (const Values& from : piece.from) Append(from, given.data() + from.begin, &values);
      if (absl::Status status = piece.function->Write(values, example + piece.to); !status.ok()) {
        return Annotate(status, absl::StrCat(info().path(), ": example ", index, " of ", v1::Split_Name(split)));
      }
    }
    return absl::OkStatus();
  }

 private:
  void Append(const Values& from, const float* given, std::vector<TextOrNumber>* values) const {
    for (int64_t i = 0; i < from.size; ++i) {
      TextOrNumber& value = values->emplace_back();
      value.is_text = from.texts;
      if (from.texts) value.text = examples().texts()->Get(given[i]);
      if (!from.texts) value.number = static_cast<double>(given[i]);
    }
  }

  int64_t size_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> WithTexts(std::shared_ptr<const Dataset> examples, const Graph& graph) {
  std::vector<int64_t> places;
  for (const int id : graph.inputs()) {
    const Values values = ValuesOf(graph.nodes()[static_cast<size_t>(id)]);
    for (int64_t i = 0; i < values.size && values.texts; ++i) places.push_back(values.begin + i);
  }
  const std::string& path = examples->info().path();
  if (examples->text_places() != places) {
    return Bad("data.path: ", path, " has ", examples->text_places().size(), " texts in an example, and the model's ",
               "inputs take ", places.size(), ", or others; give the model an input { text: true } for each column or ",
               "feature of texts");
  }
  if (!HasTexts(graph)) return examples;
  if (examples->example_size() != ModelInputSize(graph)) {
    return Bad("data.path: an example of ", path, " has ", examples->example_size(),
               " values, the model's inputs take ", ModelInputSize(graph));
  }
  return std::make_shared<TextDataset>(std::move(examples), graph);
}

}  // namespace cairn
