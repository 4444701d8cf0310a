#include "common/model/adaptable.h"

#include <algorithm>

#include "common/model/limits.h"

namespace cairn {
namespace {

constexpr char kTokenOfNone[] = "[cairn data adapt]";

template <typename Lookup>
void ClearVocabulary(Lookup* lookup) {
  lookup->clear_vocabulary();
  lookup->clear_idf_weights();
}

template <typename Lookup, typename Token>
void SetToken(const Token& token, Lookup* lookup) {
  ClearVocabulary(lookup);
  lookup->add_vocabulary(token);
  if (lookup->output_mode() == v1::TF_IDF) lookup->add_idf_weights(1);
}

}  // namespace

bool IsUnadapted(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kNormalization:
      return layer.normalization().mean().empty() && layer.normalization().variance().empty();
    case v1::Layer::kDiscretization:
      return layer.discretization().has_num_bins() && layer.discretization().bin_boundaries().empty();
    case v1::Layer::kStringLookup: return layer.string_lookup().vocabulary().empty();
    case v1::Layer::kIntegerLookup: return layer.integer_lookup().vocabulary().empty();
    case v1::Layer::kTextVectorization: return layer.text_vectorization().vocabulary().empty();
    default: return false;
  }
}

void SetPlaceholder(v1::Layer* layer) {
  switch (layer->kind_case()) {
    case v1::Layer::kDiscretization: {
      v1::Discretization& bins = *layer->mutable_discretization();
      for (int i = 1; i < std::min(bins.num_bins(), kNormalizationNumbersMax); ++i) bins.add_bin_boundaries(0);
      return;
    }
    case v1::Layer::kStringLookup: return SetToken(kTokenOfNone, layer->mutable_string_lookup());
    case v1::Layer::kIntegerLookup: return SetToken(int64_t{kEmbeddingIdsMax} - 1, layer->mutable_integer_lookup());
    case v1::Layer::kTextVectorization: return SetToken(kTokenOfNone, layer->mutable_text_vectorization());
    default: return;  // a Normalization needs none
  }
}

void ClearState(v1::Layer* layer) {
  switch (layer->kind_case()) {
    case v1::Layer::kNormalization:
      layer->mutable_normalization()->clear_mean();
      return layer->mutable_normalization()->clear_variance();
    case v1::Layer::kDiscretization: return layer->mutable_discretization()->clear_bin_boundaries();
    case v1::Layer::kStringLookup: return ClearVocabulary(layer->mutable_string_lookup());
    case v1::Layer::kIntegerLookup: return ClearVocabulary(layer->mutable_integer_lookup());
    case v1::Layer::kTextVectorization: return ClearVocabulary(layer->mutable_text_vectorization());
    default: return;
  }
}

}  // namespace cairn
