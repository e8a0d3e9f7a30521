// Plans over NCCL, made where there is no GPU, no driver and no NCCL. Skipped where the plugins are not
// built.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"

namespace prun::test::nccl_test {
namespace {

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("comm", "nccl")) GTEST_SKIP() << "there is no comm plugin 'nccl'";
  }
};

const std::vector<std::string> on_gpus = {"device.plugin=cuda", "comm.default=nccl", "batch.micro=1"};

Assembly assembly_of(const std::vector<std::string>& sets, const std::string& text) {
  return Assembly(tiny_recipe(with(on_gpus, sets), text), plugins());
}

std::string refusal(const std::vector<std::string>& sets, const std::string& text) {
  try {
    assembly_of(sets, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::shared_ptr<CommInterface> nccl() {
  return plugins().create<CommInterface>("comm", "nccl", tiny_recipe());
}

TEST_F(Nccl, EveryLayoutIsPlannedWithItsMemory) {
  CommInfo info;
  raise(nccl()->info(&info));
  EXPECT_GT(info.communicator_device_bytes, 0);
  for (const Layout& layout : layouts()) {
    const Assembly assembly = assembly_of(with({"model.layers=4"}, layout.sets), layout.text);
    std::int64_t groups = 0;
    for (const QueueInfo& queue : assembly.plan().queues) groups += queue.communicates();
    EXPECT_EQ(groups > 0, assembly.mesh().world() > 1) << layout.name;
    // One of all ranks besides.
    const std::int64_t expected =
        groups == 0 ? 0 : info.process_device_bytes + (groups + 1) * info.communicator_device_bytes;
    EXPECT_EQ(assembly.process_device_bytes() - assembly.device_info().process_device_bytes, expected)
        << layout.name;
  }
}

// cuda has a kernel for every op that adds into them.
TEST_F(Nccl, GradientsInBf16ArePlannedInEveryLayout) {
  for (const Layout& layout : layouts()) {
    const auto memory = [&](const std::string& gradient) {
      const std::vector<std::string> sets = {"model.layers=4", "precision.compute=bf16",
                                             "precision.gradient=" + gradient};
      return assembly_of(with(layout.sets, sets), layout.text).plan().layout.memory.total();
    };
    EXPECT_LT(memory("bf16"), memory("fp32")) << layout.name;
  }
}

TEST_F(Nccl, DocumentsAreKeptApartOnGpusAsWell) {
  for (const char* type : {"fp32", "bf16"})
    EXPECT_NO_THROW(assembly_of(
        {"data.mask_documents=true", "data.end_of_text=10", detail::concat("precision.compute=", type)}, ""))
        << type;
}

// No machine has it, and whoever asks is told what it would take.
TEST_F(Nccl, APlanMayNeedTensOfTerabytes) {
  const Assembly assembly = assembly_of({"model.hidden=65536", "model.heads=64", "model.layers=40"}, "");
  EXPECT_GT(assembly.plan().layout.memory.total(), std::int64_t{16} << 40);
}

TEST_F(Nccl, AMeasuredNumberReplacesTheStatedOne) {
  const std::string more = data_parallel(2) + "[comm.nccl]\ncommunicator_mib = ";
  const std::int64_t none = assembly_of({}, more + "0\n").process_device_bytes(),
                     one = assembly_of({}, more + "1\n").process_device_bytes();
  EXPECT_GT(none, 0);
  EXPECT_GE(one - none, 2 << 20);
  EXPECT_EQ((one - none) % (1 << 20), 0);
}

TEST_F(Nccl, WhatCannotBeIsRefused) {
  EXPECT_NE(refusal({"device.plugin=cpu"}, data_parallel(2)).find("does not move host memory"),
            std::string::npos);
  EXPECT_NE(refusal({}, data_parallel(2) + "[comm.nccl]\nmin_ctas = 8\nmax_ctas = 4\n")
                .find("min_ctas = 8 is more than max_ctas = 4"),
            std::string::npos);
  EXPECT_NE(refusal({"device.memory=1MiB"}, data_parallel(2)).find(" of the process"), std::string::npos);
}

// What the members of a group send arrives, and no more.
TEST_F(Nccl, WhatIsSentIsWhatARingSends) {
  const auto comm = nccl();
  const auto sent = [&](CommKind kind, std::int32_t rank, std::int32_t size) {
    CommOp op;
    op.kind = kind;
    op.dtype = DType::f32;
    op.count = 300;
    op.peer = 1;
    CommNeeds needs;
    raise(comm->needs(op, rank, size, &needs));
    return needs.bytes_sent;
  };
  EXPECT_EQ(sent(CommKind::all_reduce, 0, 2), 1200u);
  EXPECT_EQ(sent(CommKind::all_reduce, 2, 3), 1600u);
  EXPECT_EQ(sent(CommKind::all_gather, 0, 3), 2400u);
  EXPECT_EQ(sent(CommKind::reduce_scatter, 0, 3), 2400u);
  EXPECT_EQ(sent(CommKind::all_to_all, 0, 3), 2400u);
  EXPECT_EQ(sent(CommKind::send, 0, 2), 1200u);
  EXPECT_EQ(sent(CommKind::recv, 1, 2), 0u);
  EXPECT_EQ(sent(CommKind::broadcast, 0, 3), 0u);  // the root's neighbour, where the ring ends
  EXPECT_EQ(sent(CommKind::broadcast, 1, 3), 1200u);
  EXPECT_EQ(sent(CommKind::broadcast, 2, 3), 1200u);
}

}  // namespace
}  // namespace prun::test::nccl_test
