// cairn data make, cairn data info: data sets on this machine, without a cluster.
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/figures.h"
#include "client/cli/json.h"
#include "worker/data/convert.h"
#include "worker/data/describe.h"
#include "worker/data/glyphs.h"

namespace cairn {

int RunMakeData(const Globals& globals, const MakeDataOptions& options) {
  if (options.kind != "glyphs") {
    return Fail(absl::InvalidArgumentError(absl::StrFormat("data make %s: only glyphs can be made", options.kind)));
  }
  const absl::Status status = WriteGlyphs(options.dir, options.count, options.test_count, options.seed);
  if (!status.ok()) return Fail(status);
  if (!globals.json) {
    absl::PrintF("%s: %s training and %s test pictures of 10 classes, 28x28, IDX\n", options.dir,
                 Thousands(static_cast<uint64_t>(options.count)), Thousands(static_cast<uint64_t>(options.test_count)));
  }
  return kExitOk;
}

int RunDataInfo(const Globals& globals, const std::string& path) {
  v1::Data data;
  data.set_path(path);
  const auto summary = SummarizeDataset(data);
  if (!summary.ok()) return Fail(summary.status());
  absl::PrintF("%s", globals.json ? DataInfoJson(summary->info) + "\n" : ToText(*summary));
  return kExitOk;
}

int RunConvertData(const Globals& globals, const ConvertDataOptions& options) {
  v1::Data data;
  data.set_path(options.in);
  const auto converted = ConvertToTfRecord(
      data, {.out = options.out, .split = options.split, .shards = options.shards, .gzip = options.gzip});
  if (!converted.ok()) return Fail(converted.status());
  const std::array<int64_t, 3>& n = converted->examples;
  if (!globals.json) {
    absl::PrintF("%s: %s training, %s validation and %s test examples, TFRecord, %d file%s\n", options.out,
                 Thousands(static_cast<uint64_t>(n[0])), Thousands(static_cast<uint64_t>(n[1])),
                 Thousands(static_cast<uint64_t>(n[2])), converted->files, converted->files == 1 ? "" : "s");
  }
  return kExitOk;
}

}  // namespace cairn
