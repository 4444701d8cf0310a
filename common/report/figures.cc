#include "common/report/figures.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"

namespace cairn {

Figures MeanFigures(const v1::JobSpec& spec, const v1::MetricSums& sums) {
  Figures figures;
  if (sums.examples() == 0) return figures;
  figures.emplace_back("loss", sums.loss() / static_cast<double>(sums.examples()));
  for (int i = 0; i < std::min(FigureCount(spec), sums.metrics_size()); ++i)
    figures.emplace_back(MetricName(spec, i), MetricValue(spec, i, sums));
  return figures;
}

std::string Thousands(uint64_t number) {
  const std::string digits = absl::StrCat(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string ShortDuration(absl::Duration d) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(d));
  if (seconds < 9.95) return absl::StrFormat("%.1fs", seconds);
  const int64_t s = std::llround(std::min(seconds, 1e9));
  if (s < 60) return absl::StrFormat("%ds", s);
  if (s < 3600) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  return absl::StrFormat("%dh%02dm", s / 3600, s / 60 % 60);
}

std::string ShortBytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return absl::StrFormat("%.*f %s", unit == 0 ? 0 : 1, value, units[unit]);
}

std::string FigureText(double value) {
  const double size = std::fabs(value);
  if (std::isnan(value)) return "nan";  // without its sign
  return size != 0 && (size < 1e-3 || size >= 1e6) ? absl::StrFormat("%.4e", value) : absl::StrFormat("%.4f", value);
}

std::string OptimizerText(const v1::Optimizer& optimizer) {
  const char* name = "none";
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd: name = "sgd"; break;
    case v1::Optimizer::kAdagrad: name = "adagrad"; break;
    case v1::Optimizer::kRmsprop: name = "rmsprop"; break;
    case v1::Optimizer::kAdam: name = "adam"; break;
    case v1::Optimizer::kAdamw: name = "adamw"; break;
    case v1::Optimizer::kAdadelta: name = "adadelta"; break;
    case v1::Optimizer::kAdamax: name = "adamax"; break;
    case v1::Optimizer::kNadam: name = "nadam"; break;
    case v1::Optimizer::kFtrl: name = "ftrl"; break;
    case v1::Optimizer::kLion: name = "lion"; break;
    case v1::Optimizer::kLamb: name = "lamb"; break;
    case v1::Optimizer::kAdafactor: name = "adafactor"; break;
    case v1::Optimizer::kMuon: name = "muon"; break;
    case v1::Optimizer::kScheduleFreeAdamw: name = "schedule_free_adamw"; break;
    default: break;
  }
  return absl::StrFormat("%s, learning rate %g", name, optimizer.learning_rate());
}

std::string NoteText(const v1::CallbackNote& note) {
  return absl::StrFormat("epoch %d: %s: %s", note.epoch() + 1, note.callback(), note.text());
}

std::string EventText(const v1::JobEvent& event, absl::TimeZone zone) {
  return absl::StrFormat("%s %s%s", absl::FormatTime("%H:%M:%S", absl::FromUnixMillis(event.unix_ms()), zone),
                         event.warning() ? "warning: " : "", event.text());
}

std::string DegradedText(const v1::Degraded& degraded, absl::TimeZone zone) {
  const std::string since = absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(degraded.since_unix_ms()), zone);
  return absl::StrFormat("degraded since %s: %s", since, degraded.text());
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size(), ' ');
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace cairn
