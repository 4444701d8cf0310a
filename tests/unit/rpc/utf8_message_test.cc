// Goal: a message with texts that are not UTF-8 can be read on the other side: an error that names such a file arrives
// instead of breaking its stream. Other messages are not changed.
#include "common/rpc/utf8_message.h"

#include <gtest/gtest.h>

#include <string>

#include "cairn/v1/cluster.pb.h"

namespace cairn {
namespace {

TEST(Utf8MessageTest, EveryTextCanBeReadAtAnyDepth) {
  v1::NodeMessage message;
  v1::DataInfoReply& reply = *message.mutable_data_info();
  reply.set_error(std::string("/data/caf\xe9: no such file"));
  reply.mutable_info()->add_class_names(std::string("plain"));
  reply.mutable_info()->add_class_names(std::string("\xff"));
  MakeUtf8(&message);
  v1::NodeMessage read;
  ASSERT_TRUE(read.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(read.data_info().error(), "/data/caf\ufffd: no such file");
  EXPECT_EQ(read.data_info().info().class_names(0), "plain");
  EXPECT_EQ(read.data_info().info().class_names(1), "\ufffd");
}

TEST(Utf8MessageTest, Utf8StaysAsItIs) {
  v1::NodeMessage message;
  message.mutable_job_error()->set_message(std::string("caf\u00e9"));
  message.mutable_job_error()->set_job_id(3);
  const std::string before = message.SerializeAsString();
  MakeUtf8(&message);
  EXPECT_EQ(message.SerializeAsString(), before);
}

}  // namespace
}  // namespace cairn
