// Plans over `copies`, made where there is no GPU. Skipped where the plugin is not built.
#include <gtest/gtest.h>

#include "support/assembly_fixture.hpp"
#include "support/built_plugins.hpp"
#include "support/layouts.hpp"

namespace prun::test::copies_plan_test {
namespace {

class CopiesPlan : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_built("comm", "copies")) GTEST_SKIP() << "there is no comm plugin 'copies'";
  }
};

const std::vector<std::string> on_gpus = {"device.plugin=cuda", "comm.default=copies", "batch.micro=1"};

Assembly assembly_of(const std::vector<std::string>& sets, const std::string& text) {
  return Assembly(tiny_recipe(with(on_gpus, sets), text), plugins());
}

std::shared_ptr<CommInterface> copies() {
  return plugins().create<CommInterface>("comm", "copies", tiny_recipe());
}

TEST_F(CopiesPlan, EveryLayoutIsPlannedWithItsMemory) {
  CommInfo info;
  raise(copies()->info(&info));
  EXPECT_EQ(info.communicator_device_bytes, 128 << 20);
  for (const Layout& layout : layouts()) {
    const Assembly assembly = assembly_of(with({"model.layers=4"}, layout.sets), layout.text);
    std::int64_t groups = 0;
    for (const QueueInfo& queue : assembly.plan().queues) groups += queue.communicates();
    const std::int64_t expected =
        groups == 0 ? 0 : info.process_device_bytes + groups * info.communicator_device_bytes;
    EXPECT_EQ(assembly.process_device_bytes() - assembly.device_info().process_device_bytes, expected)
        << layout.name;
  }
}

TEST_F(CopiesPlan, WhatCannotBeIsRefusedWhilePlanning) {
  const auto problem = [](CommKind kind, DType dtype, std::int32_t size) {
    CommOp op;
    op.kind = kind, op.dtype = dtype, op.count = 10;
    CommNeeds needs;
    return std::string(copies()->needs(op, 0, size, &needs).message);
  };
  EXPECT_EQ(problem(CommKind::all_gather, DType::u8, 16), "");
  EXPECT_NE(problem(CommKind::all_gather, DType::u8, 17).find("16 of one host at most"), std::string::npos);
  EXPECT_EQ(problem(CommKind::all_reduce, DType::i32, 2), "");
  EXPECT_NE(problem(CommKind::reduce_scatter, DType::u8, 2).find("there is no reduce_scatter of u8"),
            std::string::npos);
  EXPECT_THROW(assembly_of({"device.plugin=cpu"}, data_parallel(2)), Error);
}

}  // namespace
}  // namespace prun::test::copies_plan_test
