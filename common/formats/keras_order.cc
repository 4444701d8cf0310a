#include "common/formats/keras_order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/model/call_mode.h"

namespace cairn {
std::vector<int> KerasInputOrder(int inputs, int keyword_inputs) {
  std::vector<int> order(static_cast<size_t>(inputs));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.end() - keyword_inputs, order.end(), [](int a, int b) {
    return absl::string_view(kAttentionArguments[a]) < absl::string_view(kAttentionArguments[b]);
  });
  return order;
}

std::vector<int> KerasLayerOrder(const std::vector<std::vector<int>>& calls, const std::vector<int>& owners,
                                 const std::vector<int>& outputs) {
  std::vector<int> depth(calls.size(), 0), of_layer(calls.size(), 0);
  std::vector<int> order, finished;  // layers in the order of their first visit; calls after all their inputs
  std::vector<bool> met(calls.size(), false), listed(calls.size(), false);
  std::vector<std::pair<int, size_t>> open;  // a stack: a call, and how many of its inputs have been visited
  const auto enter = [&](int call) {
    if (met[static_cast<size_t>(call)]) return;
    met[static_cast<size_t>(call)] = true;
    const int layer = owners[static_cast<size_t>(call)];
    if (!listed[static_cast<size_t>(layer)]) order.push_back(layer);
    listed[static_cast<size_t>(layer)] = true;
    open.emplace_back(call, 0);
  };
  for (const int output : outputs) {
    enter(output);
    while (!open.empty()) {
      auto& [call, taken] = open.back();
      const std::vector<int>& inputs = calls[static_cast<size_t>(call)];
      if (taken == inputs.size()) {
        finished.push_back(call);
        open.pop_back();
      } else {
        enter(inputs[taken++]);
      }
    }
  }
  for (size_t i = finished.size(); i-- > 0;) {
    const size_t call = static_cast<size_t>(finished[i]), layer = static_cast<size_t>(owners[call]);
    depth[call] = of_layer[layer] = std::max(depth[call], of_layer[layer]);
    for (const int input : calls[call]) {
      int& of_input = depth[static_cast<size_t>(input)];
      of_input = std::max(of_input, depth[call] + 1);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return of_layer[static_cast<size_t>(a)] > of_layer[static_cast<size_t>(b)]; });
  return order;
}

std::string KerasSnakeCase(absl::string_view class_name) {
  std::string words;  // 'WordWord' to 'Word_Word'
  const auto upper = [&](size_t i) { return i < class_name.size() && absl::ascii_isupper(class_name[i]); };
  const auto lower = [&](size_t i) { return i < class_name.size() && absl::ascii_islower(class_name[i]); };
  for (size_t i = 0; i < class_name.size(); ++i) {
    if (!absl::ascii_isalnum(class_name[i]) && class_name[i] != '_') continue;
    words += class_name[i];
    if (!upper(i + 1) || !lower(i + 2)) continue;
    words += '_';
    words += class_name[++i];
    while (lower(i + 1)) words += class_name[++i];
  }
  std::string snake;  // 'rE' to 'r_e'
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && absl::ascii_islower(words[i - 1]) && absl::ascii_isupper(words[i])) snake += '_';
    snake += absl::ascii_tolower(words[i]);
  }
  return snake;
}

KerasContainer::KerasContainer(absl::string_view path)
    : prefix_(path.empty() ? "layers/" : absl::StrCat(path, "/layers/")) {}

std::string KerasContainer::PathOf(absl::string_view class_name) {
  // The class whose public name differs from its own.
  const std::string snake = KerasSnakeCase(class_name == "GroupQueryAttention" ? "GroupedQueryAttention" : class_name);
  const int count = used_[snake]++;
  return absl::StrCat(prefix_, snake, count == 0 ? "" : absl::StrCat("_", count));
}

}  // namespace cairn
