#include "common/model/einsum_equation.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bad.h"

namespace cairn {

absl::StatusOr<EinsumEquation> ParseEinsum(const std::string& equation, size_t rank) {
  const auto bad = [&](const auto&... what) {
    return Bad("equation \"", absl::CEscape(equation.substr(0, 64)), "\": ", what...);
  };
  std::string text;
  for (const char c : equation.substr(0, 256)) {
    if (c != ' ') text.push_back(c);
  }
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return bad("it does not have two operands and a result; write it as \"abc,cd->abd\"");
  }
  absl::string_view x = absl::string_view(text).substr(0, comma);
  absl::string_view kernel = absl::string_view(text).substr(comma + 1, arrow - comma - 1);
  absl::string_view y = absl::string_view(text).substr(arrow + 2);
  const bool elided = absl::ConsumePrefix(&x, "...");
  if (absl::ConsumePrefix(&y, "...") != elided)
    return bad("... is on one side only; write it on both, at the beginning");
  for (const absl::string_view part : {x, kernel, y}) {
    if (!std::all_of(part.begin(), part.end(), [](unsigned char c) { return absl::ascii_isalpha(c); }))
      return bad("it has characters other than letters; write it as \"abc,cd->abd\"");
    for (const char c : part) {
      if (std::count(part.begin(), part.end(), c) > 1)
        return bad("\"", std::string(1, c), "\" occurs twice in \"", part, "\"; use letters once");
    }
  }
  EinsumEquation e{std::string(x), std::string(kernel), std::string(y)};
  if (elided) {  // the batch, and the axes after it
    if (e.x.size() > rank) return bad("its input has ", rank, " axes after the batch; name at most that many");
    std::string front;
    for (char c = '1'; front.size() + e.x.size() < rank; ++c) front.push_back(c);
    e.x = front + e.x;
    e.y = front + e.y;
  } else {
    if (e.x.empty() || e.y.empty() || e.x[0] != e.y[0] || absl::StrContains(e.kernel, e.x[0])) {
      return bad("the first letter of the input is the batch; the output begins with it, the kernel lacks it");
    }
    e.x.erase(0, 1);
    e.y.erase(0, 1);
  }
  if (e.x.size() != rank)
    return bad("its input has ", rank, " axes after the batch, but the equation has ", e.x.size());
  for (const char c : e.x) {
    if (!absl::StrContains(e.kernel, c) && !absl::StrContains(e.y, c))
      return bad("\"", std::string(1, c), "\" is only in the input; sum only over letters of the kernel");
  }
  for (const char c : e.kernel) {
    if (!absl::StrContains(e.x, c) && !absl::StrContains(e.y, c))
      return bad("\"", std::string(1, c), "\" is only in the kernel; leave it out");
  }
  for (const char c : e.y) {
    if (!absl::StrContains(e.x, c) && !absl::StrContains(e.kernel, c))
      return bad("\"", std::string(1, c), "\" is only in the output; leave it out");
  }
  return e;
}

absl::StatusOr<EinsumEquation> ParseEinsumOfTwo(const std::string& equation, const Shape& x, const Shape& kernel,
                                                Shape* output) {
  const auto bad = [&](const auto&... what) {
    return Bad("equation \"", absl::CEscape(equation.substr(0, 64)), "\": ", what...);
  };
  std::string text;
  for (const char c : equation.substr(0, 256)) {
    if (c != ' ') text.push_back(c);
  }
  const size_t comma = text.find(',');
  if (absl::StrContains(text, '.')) return bad("... is not supported; write out the letters");
  if (comma == std::string::npos || comma + 1 >= text.size() || text[comma + 1] != text[0]) {
    return bad("the first letter is the batch, which both inputs have; write it as \"bij,bjk->bik\"");
  }
  text.erase(comma + 1, 1);
  CAIRN_ASSIGN_OR_RETURN(EinsumEquation e, ParseEinsum(text, x.size()));
  if (e.kernel.size() != kernel.size()) {
    return bad("its second input has ", kernel.size(), " axes after the batch, but the equation has ", e.kernel.size());
  }
  for (size_t i = 0; i < kernel.size(); ++i) {
    const size_t at = e.x.find(e.kernel[i]);
    if (at == std::string::npos || x[at] == kernel[i]) continue;
    return bad("\"", std::string(1, e.kernel[i]), "\" is ", x[at], " in the first input and ", kernel[i],
               " in the second; make them equal");
  }
  output->clear();
  for (const char c : e.y) {
    const size_t at = e.x.find(c);
    output->push_back(at != std::string::npos ? x[at] : kernel[e.kernel.find(c)]);
  }
  if (output->empty()) output->push_back(1);
  return e;
}

}  // namespace cairn
