#include "common/model/path_template.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bad.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

// Consumes the digits at the beginning of `text`; -1 if there are none.
int TakeNumber(absl::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && digits < 4 && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  int number = -1;
  if (digits > 0 && !absl::SimpleAtoi(text.substr(0, digits), &number)) number = -1;
  text.remove_prefix(digits);
  return number;
}

}  // namespace

absl::StatusOr<PathTemplate::Piece> PathTemplate::ParseName(absl::string_view inside) {
  Piece piece;
  const size_t colon = inside.find(':');
  piece.name = std::string(inside.substr(0, colon));
  if (piece.name.empty()) return Bad("{} names nothing; use {epoch} or a figure such as {val_loss:.2f}");
  if (colon == absl::string_view::npos) return piece;
  const absl::string_view format = inside.substr(colon + 1);
  absl::string_view left = format;
  if (!left.empty() && left[0] == '0') {
    piece.zeros = true;
    left.remove_prefix(1);
  }
  piece.width = std::max(0, TakeNumber(left));
  bool good = piece.width <= kTemplateWidthMax;
  if (!left.empty() && left[0] == '.') {
    left.remove_prefix(1);
    piece.precision = TakeNumber(left);
    good = good && piece.precision >= 0 && piece.precision <= kTemplatePrecisionMax;
  }
  if (!left.empty()) {
    piece.type = left[0];
    left.remove_prefix(1);
    good = good && absl::string_view("dfFeEgG").find(piece.type) != absl::string_view::npos;
  }
  good = good && left.empty() && !(piece.type == 'd' && piece.precision >= 0);
  if (!good) return Bad("\"", format.substr(0, 32), "\" is not a format; use 02d for counts or .2f for figures");
  return piece;
}

absl::StatusOr<PathTemplate> PathTemplate::Parse(absl::string_view text) {
  PathTemplate result;
  std::string literal;
  const auto flush = [&] {
    if (literal.empty()) return;
    result.pieces_.push_back({std::exchange(literal, {}), {}});
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c == '{' || c == '}') && i + 1 < text.size() && text[i + 1] == c) {
      literal += c;
      ++i;
    } else if (c == '}') {
      return Bad("a } without its {; write }} for a brace");
    } else if (c == '{') {
      const size_t end = text.find('}', i);
      if (end == absl::string_view::npos) return Bad("a { without its }; write {{ for a brace");
      flush();
      CAIRN_ASSIGN_OR_RETURN(Piece piece, ParseName(text.substr(i + 1, end - i - 1)));
      result.pieces_.push_back(std::move(piece));
      i = end;
    } else {
      literal += c;
    }
  }
  flush();
  return result;
}

std::vector<std::string> PathTemplate::Names() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_) {
    if (!piece.name.empty() && std::find(names.begin(), names.end(), piece.name) == names.end()) {
      names.push_back(piece.name);
    }
  }
  return names;
}

std::string PathTemplate::Beginning() const {
  return pieces_.empty() || !pieces_[0].name.empty() ? "" : pieces_[0].literal;
}

absl::StatusOr<std::string> PathTemplate::Fill(const std::map<std::string, int64_t>& counts,
                                               const std::map<std::string, double>& figures) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    if (piece.name.empty()) {
      text += piece.literal;
      continue;
    }
    const auto count = counts.find(piece.name);
    const auto figure = figures.find(piece.name);
    if (count == counts.end() && figure == figures.end()) return Bad("there is no {", piece.name, "} here");
    const bool whole = count != counts.end() && (piece.type == 0 ? piece.precision < 0 : piece.type == 'd');
    char out[512];
    if (whole) {
      std::snprintf(out, sizeof(out), piece.zeros ? "%0*lld" : "%*lld", piece.width,
                    static_cast<long long>(count->second));
    } else if (piece.type == 'd') {
      return Bad("{", piece.name, "} is not a whole number; use a format such as .2f");
    } else {
      const double value = count != counts.end() ? static_cast<double>(count->second) : figure->second;
      const char type = piece.type == 0 ? 'g' : piece.type;
      if (piece.type == 0 && piece.precision < 0) {
        std::snprintf(out, sizeof(out), "%*s", piece.width, ShortestText(value).c_str());
      } else {
        const std::string format = absl::StrCat("%", piece.zeros ? "0" : "", "*.*", std::string(1, type));
        std::snprintf(out, sizeof(out), format.c_str(), piece.width, piece.precision < 0 ? 6 : piece.precision, value);
      }
    }
    text += out;
  }
  return text;
}

std::string ShortestText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text;
  int precision = 1;
  for (; precision <= 17; ++precision) {
    text = absl::StrFormat("%.*e", precision - 1, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  int exponent = 0;
  if (!absl::SimpleAtoi(text.substr(text.find('e') + 1), &exponent)) return text;
  if (exponent >= -4 && exponent < 16) {
    text = absl::StrFormat("%.*f", std::max(precision - 1 - exponent, 0), value);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  return text;
}

}  // namespace cairn
