// Seeds of the targets pem, csv_log and event_file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/formats/tensorboard.h"
#include "tests/fuzz/certificate_seed.h"
#include "tests/fuzz/input.h"

namespace cairn {

// Pairs of a target and an input.
inline std::vector<std::pair<std::string, std::string>> FileSeeds() {
  std::vector<std::pair<std::string, std::string>> seeds;
  const auto add = [&](const char* target, const ByteSink& sink) { seeds.emplace_back(target, sink.bytes()); };
  const CertificateSeed made = MakeCertificateSeed();
  add("pem", ByteSink().Byte(0).Raw(made.pem + made.key));
  add("pem", ByteSink().Byte(0).Raw(made.key + made.pem + made.pem));
  add("pem", ByteSink().Byte(1).Raw(made.der));
  add("csv_log", ByteSink().Byte(0).Byte(0).Raw("epoch,loss\r\n0,0.25\r\n1,0.5\r\n"));
  add("csv_log", ByteSink().Byte(1).Byte(1).Raw("epoch,loss,accuracy\r\n0,0.25,0.5\r\n0,0.3,0.4\r\n1,0."));
  tensorboard::Event event;
  event.set_wall_time(1);
  event.set_step(7);
  AddScalar("epoch_loss", 0.5f, event.mutable_summary());
  std::string file;
  for (int i = 0; i < 3; ++i) AppendRecord(event.SerializeAsString(), &file);
  add("event_file", ByteSink().Byte(0).Raw(file));
  add("event_file", ByteSink().Byte(1).Block(event.SerializeAsString()).Block(event.SerializeAsString()));
  return seeds;
}

}  // namespace cairn
