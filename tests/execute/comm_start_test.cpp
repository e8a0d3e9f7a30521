// What happens between ranks before the first step: groups split from one communicator of all ranks, memory
// attached, operations announced, units of a device taken by one rank each.
#include <gtest/gtest.h>

#include "estimate/forecast.hpp"
#include "inspect/report.hpp"
#include "support/assembly_fixture.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::comm_start_test {
namespace {

const std::string pipeline_and_data =
    "[mesh]\npp = 2\ndp = 2\n[[strategy]]\nplugin = 'data'\n[[strategy]]\nplugin = 'zero'\nstage = 3\n"
    "[[strategy]]\nplugin = 'pipeline'\n";

Recipe on_async(std::vector<std::string> sets, const std::string& more) {
  for (const char* set : {"device.plugin=cpu-async", "comm.default=meet-async", "batch.micro=1"})
    sets.push_back(set);
  return tiny_recipe(sets, more);
}

std::string failure_of(const Recipe& recipe) {
  try {
    run_ranks(recipe, 1);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing failed";
}

// Ranks stand aside where the other stages make their groups; meet-async refuses another order, operations
// that connect() was not told of and memory that was not attached.
TEST(CommStart, GroupsAreSplitFromTheCommunicatorOfAllRanks) {
  const std::string split = "[comm.meet-async]\nsplit = true\n";
  EXPECT_EQ(run_ranks(on_async({}, pipeline_and_data + split), 3),
            run_ranks(on_async({}, pipeline_and_data), 3));
}

// One rank fails while the others wait for it in attach_memory().
TEST(CommStart, AFailureEndsThoseWhoWaitForItBeforeTheFirstStep) {
  const Probes fails = [](const Assembly& assembly, const Communicators*) -> std::vector<Probe*> {
    if (assembly.rank() == 1) throw_error(ErrorCode::bad_input, "rank 1 fails on purpose");
    return {};
  };
  try {
    run_local_ranks(
        on_async({}, data_parallel(2)), plugins().places(), [](Trainer&) {}, fails);
    FAIL() << "nothing failed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 fails on purpose");
  }
}

// Notes the order of its calls, and reads attached memory before it is detached: it must still be there.
class Listening final : public CommInterface {
 public:
  Status info(CommInfo*) noexcept override { return {}; }
  Status create(const CommGroup&, Communicator*) noexcept override { return {}; }
  Status destroy(Communicator) noexcept override { return {}; }
  Status attach_memory(Communicator at, void* base, std::int64_t bytes) noexcept override {
    return note(at, "attach", [&] {
      memory_ = {static_cast<const char*>(base), static_cast<std::size_t>(bytes)};
    });
  }
  Status detach_memory(Communicator at) noexcept override {
    return note(at, "detach", [&] { last_byte_ = memory_.back(); });
  }
  Status connect(Communicator at, const CommOp* ops, std::int64_t count, void*) noexcept override {
    return note(at, "connect", [&] { told_.insert(told_.end(), ops, ops + count); });
  }
  Status prepare(Communicator at, const CommOp*, std::int64_t, void*) noexcept override {
    return note(at, "prepare", [] {});
  }
  Status start(Communicator at, const CommOp*, std::int64_t, void*) noexcept override {
    return note(at, "start", [] {});
  }
  Status finish(Communicator) noexcept override { return {}; }
  Status abort(Communicator) noexcept override { return {}; }
  Status counters(Communicator, CommCounters*) noexcept override { return {}; }
  Status check(Communicator) noexcept override { return {}; }
  Status needs(const CommOp&, std::int32_t, std::int32_t, CommNeeds*) noexcept override { return {}; }
  Status examine(Text*) noexcept override { return {}; }

  const std::vector<std::string>& calls() const { return calls_; }
  const std::vector<CommOp>& told() const { return told_; }

 private:
  template <class Body>
  Status note(Communicator at, const char* what, Body&& body) noexcept {
    const std::scoped_lock lock(mutex_);
    calls_.push_back(what + (" " + *static_cast<const std::string*>(at)));
    body();
    return {};
  }

  std::mutex mutex_;
  std::vector<std::string> calls_;
  std::vector<CommOp> told_;
  std::span<const char> memory_;
  volatile char last_byte_ = 0;
};

TEST(CommStart, MemoryIsAttachedByNameBeforeTheStepsAndDetachedBeforeItGoes) {
  const Assembly assembly(tiny_recipe({"batch.micro=1"}, pipeline_and_data), plugins());
  const std::vector<QueueInfo>& queues = assembly.plan().queues;
  Listening comm;
  std::vector<std::string> names;
  std::vector<QueueComm> comms(queues.size());
  std::vector<std::string> stored;
  for (const QueueInfo& queue : queues) stored.push_back(queue.name);
  for (std::size_t q = 0; q < queues.size(); ++q) {
    if (!queues[q].communicates()) continue;
    comms[q] = {&comm, &stored[q], false};
    names.push_back(queues[q].name);
  }
  std::sort(names.begin(), names.end());
  ASSERT_GE(names.size(), 3u);
  {
    Executor executor(assembly.program(), assembly.plan(), assembly.devices(), {}, comms);
    std::vector<std::string> expected;
    for (const std::string& name : names) {
      expected.push_back("attach " + name);
      expected.push_back("connect " + name);
    }
    EXPECT_EQ(comm.calls(), expected);
    executor.start_step();
    executor.finish_step();
  }
  std::vector<std::string> last(comm.calls().end() - static_cast<std::ptrdiff_t>(names.size()),
                                comm.calls().end());
  for (std::string& name : names) name = "detach " + name;
  EXPECT_EQ(last, names);
  const std::vector<CommOp> again = distinct(comm.told());
  EXPECT_LE(again.size(), comm.told().size());
  EXPECT_FALSE(again.empty());
}

TEST(CommStart, EachRankHearsWhichOfItsHostsRanksItIs) {
  std::mutex mutex;
  std::set<std::string> units;
  run_local_ranks(on_async({"device.units=2"}, data_parallel(2)), plugins().places(), [&](Trainer& trainer) {
    const std::scoped_lock lock(mutex);
    units.emplace(trainer.assembly().device_info().unit.view());
  });
  EXPECT_EQ(units, (std::set<std::string>{"unit 0", "unit 1"}));
  EXPECT_NE(failure_of(on_async({"device.units=2", "batch.global=6"}, data_parallel(3)))
                .find("this host, which has 2 units"),
            std::string::npos);
  // One alone may be what each is shown: that it is the same shows when they meet.
  EXPECT_NE(failure_of(on_async({"device.units=1"}, data_parallel(2)))
                .find("cannot give unit 0 to both ranks 0 and 1"),
            std::string::npos);
}

TEST(CommStart, TwoRanksOnOneUnitAreRefused) {
  EXPECT_NE(failure_of(on_async({"device.unit=GPU-7"}, data_parallel(2)))
                .find("cannot give GPU-7 to both ranks 0 and 1"),
            std::string::npos);
}

TEST(CommStart, ADeviceThatWantsProcessesIsRefusedWhereRanksAreThreads) {
  EXPECT_NE(
      failure_of(on_async({"device.alone=true"}, data_parallel(2))).find("which needs a process for each"),
      std::string::npos);
  EXPECT_EQ(failure_of(on_async({"device.alone=true"}, "")), "nothing failed");
}

// Twice for the process, and once for each communicator: that of all ranks, one for ZeRO and more.
TEST(CommStart, DeviceMemoryOfCommPluginsCountsWithThePlans) {
  const auto with = [](const std::string& options, const std::vector<std::string>& sets = {}) {
    return on_async(sets, data_parallel(2) + "[comm.meet-async]\n" + options);
  };
  const Assembly plain(with(""), plugins()), taking(with("device_bytes = 1048576\n"), plugins());
  std::int64_t communicators = 0;
  for (const QueueInfo& queue : plain.plan().queues) communicators += queue.communicates();
  EXPECT_EQ(plain.process_device_bytes(), 0);
  EXPECT_EQ(taking.process_device_bytes(), (2 + communicators) << 20);
  const Assembly split(with("device_bytes = 1048576\nsplit = true\n"), plugins());
  EXPECT_EQ(split.process_device_bytes(), (3 + communicators) << 20);
  const std::string text = plan_text(taking, forecast(taking, plugins(), std::nullopt));
  EXPECT_NE(text.find("of the device's memory for context, libraries and communicators"), std::string::npos)
      << text;
  // All that the device has; what the recipe allows is the plan's alone.
  const std::int64_t enough = plain.plan().layout.memory.total() + (std::int64_t{1} << 20);
  const std::string all = "device.memory_kib=" + std::to_string(enough >> 10);
  EXPECT_NO_THROW(Assembly(with("", {all}), plugins()));
  EXPECT_NO_THROW(Assembly(
      with("device_bytes = 1048576\n", {"device.memory=" + std::to_string(enough) + "B"}), plugins()));
  try {
    Assembly(with("device_bytes = 1048576\n", {all}), plugins());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(" of the process"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace prun::test::comm_start_test
