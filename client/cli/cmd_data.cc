// cairn data make, info and convert: creates, describes and converts data sets on this machine, without a cluster.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "common/data/convert.h"
#include "common/data/describe.h"
#include "common/data/generated.h"
#include "common/data/glyphs.h"
#include "common/report/figures.h"
#include "common/report/json.h"

namespace cairn {

namespace {

struct Kind {
  const char* name;
  const char* what;  // what is created
  absl::Status (*write)(const std::string& dir, int64_t train_count, int64_t test_count, uint64_t seed);
};
constexpr Kind kKinds[] = {
    {"glyphs", "pictures of 10 classes, 28x28, IDX", WriteGlyphs},
    {"colour-glyphs", "pictures of 10 classes, 32x32x3, CIFAR-10's format", WriteColourGlyphs},
    {"texts", "texts of 4 topics, at most 64 words of 2,000, TFRecord", WriteTexts},
    {"sentences", "texts of 4 topics, at most 64 words of 2,000, CSV", WriteSentences},
};

v1::Data DataAt(const std::string& path, const CsvOptions& csv) {
  v1::Data data;
  data.set_path(path);
  data.set_label_column(csv.label);
  if (!csv.header.empty()) data.set_header(csv.header == "true");
  return data;
}

}  // namespace

int RunMakeData(const Globals& globals, const MakeDataOptions& options) {
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.name == options.kind; });
  if (kind == std::end(kKinds)) {
    return Fail(absl::InvalidArgumentError(
        absl::StrFormat("data make %s: unknown; use glyphs, colour-glyphs, texts or sentences", options.kind)));
  }
  const absl::Status status = kind->write(options.dir, options.count, options.test_count, options.seed);
  if (!status.ok()) return Fail(status);
  if (!globals.json) {
    absl::PrintF("%s: %s training and %s test %s\n", options.dir, Thousands(static_cast<uint64_t>(options.count)),
                 Thousands(static_cast<uint64_t>(options.test_count)), kind->what);
  }
  return kExitOk;
}

int RunDataInfo(const Globals& globals, const DataInfoOptions& options) {
  const auto summary = SummarizeDataset(DataAt(options.path, options.csv), options.csv.texts);
  if (!summary.ok()) return Fail(summary.status());
  absl::PrintF("%s", globals.json ? DataInfoJson(summary->info) + "\n" : ToText(*summary));
  return kExitOk;
}

int RunConvertData(const Globals& globals, const ConvertDataOptions& options) {
  const auto converted = ConvertToTfRecord(DataAt(options.in, options.csv), {.out = options.out,
                                                                             .split = options.split,
                                                                             .shards = options.shards,
                                                                             .gzip = options.gzip,
                                                                             .texts = options.csv.texts});
  if (!converted.ok()) return Fail(converted.status());
  for (const std::string& column : converted->text_columns)
    absl::FPrintF(stderr, "cairn: %s: %s\n", options.in, column);
  const std::array<int64_t, 3>& n = converted->examples;
  if (!globals.json) {
    absl::PrintF("%s: %s training, %s validation and %s test examples, TFRecord, %d file%s\n", options.out,
                 Thousands(static_cast<uint64_t>(n[0])), Thousands(static_cast<uint64_t>(n[1])),
                 Thousands(static_cast<uint64_t>(n[2])), converted->files, converted->files == 1 ? "" : "s");
  }
  return kExitOk;
}

}  // namespace cairn
