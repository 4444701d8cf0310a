#include "common/formats/keras_order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

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

std::vector<int> KerasLayerOrder(const std::vector<std::vector<int>>& calls, int output) {
  std::vector<int> depth(calls.size(), 0), order;
  std::vector<bool> met(calls.size(), false);
  std::vector<int> open = {output};  // a stack: each input is met with all before it ahead of its neighbour
  while (!open.empty()) {
    const int layer = open.back();
    open.pop_back();
    const size_t at = static_cast<size_t>(layer);
    if (met[at]) continue;
    met[at] = true;
    order.push_back(layer);
    open.insert(open.end(), calls[at].rbegin(), calls[at].rend());
  }
  for (size_t at = calls.size(); at-- > 0;) {
    if (!met[at]) continue;
    for (const int input : calls[at]) {
      int& of_input = depth[static_cast<size_t>(input)];
      of_input = std::max(of_input, depth[at] + 1);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return depth[static_cast<size_t>(a)] > depth[static_cast<size_t>(b)]; });
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
  const std::string snake = KerasSnakeCase(class_name);
  const int count = used_[snake]++;
  return absl::StrCat(prefix_, snake, count == 0 ? "" : absl::StrCat("_", count));
}

}  // namespace cairn
