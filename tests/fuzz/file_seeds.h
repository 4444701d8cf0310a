// Seeds of the targets pem, csv_log, event_file, http_head, etcd_answers and assignment.
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
  add("csv_log", ByteSink().Byte(0).Byte(0).Byte(0).Raw("epoch,loss\r\n0,0.25\r\n1,0.5\r\n"));
  add("csv_log", ByteSink().Byte(1).Byte(0).Byte(1).Raw("epoch,loss,accuracy\r\n0,0.25,0.5\r\n0,0.3,0.4\r\n1,0."));
  tensorboard::Event event;
  event.set_wall_time(1);
  event.set_step(7);
  AddScalar("epoch_loss", 0.5f, event.mutable_summary());
  std::string file;
  for (int i = 0; i < 3; ++i) AppendRecord(event.SerializeAsString(), &file);
  add("event_file", ByteSink().Byte(0).Raw(file));
  add("event_file", ByteSink().Byte(1).Block(event.SerializeAsString()).Block(event.SerializeAsString()));
  add("http_head",
      ByteSink().Byte(200).Byte(0).Raw("GET /job?id=7&tab=a%20b HTTP/1.1\r\nHost: cairn.example:7071\r\n\r\n"));
  add("http_head",
      ByteSink().Byte(9).Byte(1).Raw("POST /actions/submit HTTP/1.1\r\nHost: a.pods.example\r\nOrigin: "
                                     "https://a.pods.example\r\nSec-Fetch-Site: same-origin\r\nX-Cairn-Action: "
                                     "1\r\nContent-Type: application/json\r\nContent-Length: 2\r\nExpect: "
                                     "100-continue\r\nAuthorization: Bearer abc\r\n\r\n{}"));
  // Puts of all sizes by two terms, then an altered answer; a stored value that is altered; who leads.
  add("etcd_answers",
      ByteSink().Byte(0).Byte(0).Byte(1).Byte(1).Byte(1).Byte(0xf3).Byte(6).Byte(4).Byte(2).Byte(1).Byte(5).Byte(4));
  add("etcd_answers",
      ByteSink().Byte(0).Byte(2).Byte(0xf4).Byte(7).Byte(1).Byte(1).Byte(1).Byte(3).Byte(4).Byte(3).Byte(2));
  add("etcd_answers", ByteSink().Byte(0).Byte(0).Byte(2).Byte(8).Byte(0).Byte(1).Byte(1).Byte(7).Byte(4));
  add("etcd_answers", ByteSink().Byte(10).Byte(1).Byte(1).Byte(0).Byte(1).Byte(1).Byte(1));
  // A job from its assignment to its end.
  for (uint8_t mode = 0; mode < 24; ++mode) {
    ByteSink run;
    run.Byte(mode % 12).Byte(mode / 12).Byte(1).Byte(0).Byte(0).Byte(1).Byte(3).Byte(0).Byte(0);
    for (int step = 0; step < 12; ++step) {
      for (int i = 0; i < 6; ++i) run.Byte(1);
      run.Byte(5).Byte(5);
    }
    add("assignment", run);
  }
  return seeds;
}

}  // namespace cairn
