// The cpu device through its plugin ABI, with fake kernels: options, memory, launches, tickets, pinning.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "call_counter.hpp"
#include "host/host_memory.hpp"
#include "isa.hpp"
#include "prun/plugin.hpp"
#include "worker_pool.hpp"

extern "C" const prun::PluginDescriptor* prun_plugin_v1(const prun::HostApi*);

namespace prun::cpu {
namespace {

struct Section {
  std::int64_t threads = 0;
  bool pin = true;
  std::string isa = "auto";
  std::int64_t spin_us = 50;
  double peak_gflops = 0;
  double host_gib = 0;
  std::int32_t local_ranks = 1;
};

Status unknown(Text key) { return Status::failure(ErrorCode::internal, key.view()); }

OptionsApi api_of(Section& section) {
  OptionsApi api{};
  api.struct_size = sizeof api;
  api.section = &section;
  api.local_ranks = section.local_ranks;
  api.integer = [](void* s, Text key, std::int64_t* value) {
    if (key.view() == "threads") return *value = static_cast<Section*>(s)->threads, Status{};
    if (key.view() == "spin_us") return *value = static_cast<Section*>(s)->spin_us, Status{};
    return unknown(key);
  };
  api.number = [](void* s, Text key, double* value) {
    if (key.view() == "plan_gib") return *value = 0, Status{};
    if (key.view() == "host_gib") return *value = static_cast<Section*>(s)->host_gib, Status{};
    if (key.view() != "peak_gflops") return unknown(key);
    return *value = static_cast<Section*>(s)->peak_gflops, Status{};
  };
  api.flag = [](void* s, Text key, bool* value) {
    if (key.view() != "pin" && key.view() != "fuse") return unknown(key);
    return *value = key.view() == "pin" ? static_cast<Section*>(s)->pin : true, Status{};
  };
  api.text = [](void* s, Text key, Text* value) {
    if (key.view() != "isa") return unknown(key);
    return *value = static_cast<Section*>(s)->isa, Status{};
  };
  return api;
}

// The device as the core holds it; failures of its calls become exceptions again.
class Opened {
 public:
  explicit Opened(Section section = {}) : section_(std::move(section)) {
    const OptionsApi api = api_of(section_);
    Status status;
    device_.reset(static_cast<DeviceInterface*>(prun_plugin_v1(nullptr)->create(&api, &status)));
    raise(status);
  }
  DeviceInfo info() {
    DeviceInfo info;
    raise(device_->info(&info));
    return info;
  }
  void* allocate(std::int64_t bytes) {
    void* memory = nullptr;
    raise(device_->allocate(Space::device, bytes, &memory));
    return memory;
  }
  Queue create_queue(std::string_view name, bool workers) {
    Queue queue = nullptr;
    raise(device_->create_queue(name, workers, &queue));
    return queue;
  }
  Kernel kernel(std::string_view op) {
    const KernelDef* def = device_->kernel(op);
    PRUN_CHECK(def, op);
    return def->select(OpShape{});
  }
  BoundWork bind(Queue queue, const std::vector<Launch>& launches) {
    BoundWork work = nullptr;
    raise(device_->bind(queue, launches.data(), static_cast<std::int64_t>(launches.size()), &work));
    return work;
  }
  void launch(Queue queue, const std::vector<Launch>& launches) {
    raise(device_->run(queue, bind(queue, launches)));
  }
  DeviceInterface& operator*() { return *device_; }
  DeviceInterface* operator->() { return device_.get(); }

 private:
  struct Destroy {
    void operator()(void* device) const { prun_plugin_v1(nullptr)->destroy(device); }
  };
  Section section_;
  std::unique_ptr<DeviceInterface, Destroy> device_;
};

Tensor vector_of(std::int64_t* data, std::int64_t n) {
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = DType::i64;
  tensor.rank = 1;
  tensor.dim[0] = n;
  return tensor;
}

Error error_of(auto&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::ok, "no error"};
}

bool mentions(const Error& error, std::string_view text) {
  return std::string_view(error.what()).find(text) != std::string_view::npos;
}

TEST(CpuDevice, DescribesItself) {
  const PluginDescriptor& plugin = *prun_plugin_v1(nullptr);
  EXPECT_EQ(plugin.kind.view(), "device");
  EXPECT_EQ(plugin.name.view(), "cpu");
  const std::string isa = name_of(choose_isa("auto"));
  Opened device({.threads = 2, .isa = isa, .peak_gflops = 1.5});
  const DeviceInfo info = device.info();
  EXPECT_EQ(info.name.view(), "cpu: 2 threads, " + isa);
  EXPECT_EQ(info.kind.view(), "cpu");
  EXPECT_EQ(info.threads, 2);
  EXPECT_EQ(info.memory_bytes, host::memory_limit());
  EXPECT_EQ(info.peak_flops, 1.5e9);
  EXPECT_TRUE(info.host_memory);
  EXPECT_EQ(Opened({.threads = 1, .isa = isa}).info().name.view(), "cpu: 1 thread, " + isa);
}

TEST(CpuDevice, ZeroThreadsMeansEveryUsableCore) {
  const std::vector<int> cores = usable_cores();
  EXPECT_EQ(Opened().info().threads, static_cast<std::int32_t>(cores.size()));
  std::thread([&] {
    keep_thread_on(pthread_self(), std::span(cores).first(1));
    EXPECT_EQ(Opened().info().threads, 1);
  }).join();
}

TEST(CpuDevice, RunsTheKernelsOfTheChosenInstructionSet) {
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (!machine_has(isa) || !was_built(isa)) {
      const Error error = error_of([&] { Opened({.isa = name_of(isa)}); });
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_TRUE(mentions(error, name_of(isa))) << error.what();
      continue;
    }
    Opened device({.threads = 1, .isa = name_of(isa)});
    std::int64_t ran = -1;
    const Tensor out = vector_of(&ran, 1);
    const Queue queue = device.create_queue("compute", true);
    device.launch(queue, {{device.kernel("name_isa"), {.operands = &out}}});
    EXPECT_EQ(ran, static_cast<std::int64_t>(isa));
  }
}

TEST(CpuDevice, AutoIsTheBestThereIs) {
  const Isa isa = choose_isa("auto");
  EXPECT_TRUE(machine_has(isa));
  for (Isa better : {Isa::avx2, Isa::avx512}) EXPECT_TRUE(better <= isa || !machine_has(better));
  EXPECT_EQ(error_of([] { choose_isa("avx3"); }).code(), ErrorCode::bad_input);
}

TEST(CpuDevice, HasNoKernelForAnUnknownOp) {
  Opened device;
  EXPECT_EQ(device->kernel(Text("no_such_op")), nullptr);
  ASSERT_NE(device->kernel(Text("count_up")), nullptr);
  EXPECT_STREQ(device->kernel(Text("count_up"))->op, "count_up");
}

TEST(CpuDevice, MemoryIsZeroedResidentAndAligned) {
  Opened device;
  // The last is so large that several threads touch it.
  for (std::int64_t bytes : {0L, 1L, 4096L, 4097L, 3L << 20, (5L << 20) + 8, (300L << 20) + 8}) {
    auto* memory = static_cast<unsigned char*>(device.allocate(bytes));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
    const auto size = static_cast<std::size_t>(bytes);
    std::vector<unsigned char> resident(size / 4096 + 1);
    ASSERT_EQ(mincore(memory, std::max<std::size_t>(size, 1), resident.data()), 0) << std::strerror(errno);
    for (std::size_t page = 0; page < (size + 4095) / 4096; ++page) EXPECT_EQ(resident[page] & 1, 1) << page;
    EXPECT_EQ(std::count(memory, memory + size, 0), bytes);
    std::fill(memory, memory + size, 0xff);
    raise(device->release(Space::device, memory, bytes));
    EXPECT_EQ(mincore(memory, 1, resident.data()), -1) << "still mapped";
  }
}

TEST(CpuDevice, RefusesMoreMemoryThanThereIs) {
  Opened device;
  const std::int64_t too_much = device.info().memory_bytes - 4095;
  void* some = device.allocate(4096);
  const Error error = error_of([&] { device.allocate(too_much); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(mentions(error, std::to_string(too_much))) << error.what();
  EXPECT_TRUE(mentions(error, "use a smaller model")) << error.what();
  EXPECT_TRUE(mentions(error, "host_gib")) << error.what();
  raise(device->release(Space::device, some, 4096));
  EXPECT_EQ(error_of([&] { device.allocate(-1); }).code(), ErrorCode::internal);
}

TEST(CpuDevice, TakesTheWordOfWhoKnowsTheMachine) {
  EXPECT_EQ(Opened({.host_gib = 1.5}).info().memory_bytes, std::int64_t{3} << 29);
}

TEST(CpuDevice, CopiesUpAndDown) {
  Opened device;
  const std::array<std::int64_t, 3> sent{1, 2, 3};
  std::array<std::int64_t, 3> received{};
  void* memory = device.allocate(sizeof sent);
  raise(device->upload(memory, sent.data(), sizeof sent));
  raise(device->download(received.data(), memory, sizeof sent));
  EXPECT_EQ(received, sent);
  raise(device->release(Space::device, memory, sizeof sent));
}

TEST(CpuDevice, LaunchesInOrderOnAsManyWorkersAsTheQueueHas) {
  Opened device({.threads = 3, .pin = false});
  const Queue compute = device.create_queue("compute", true), copy = device.create_queue("copy", false);
  std::int64_t digits = 0, workers = 0, numbers[100] = {};
  const Tensor digit = vector_of(&digits, 1), count = vector_of(&workers, 1), all = vector_of(numbers, 100);
  const Kernel append = device.kernel("append_digit");
  device.launch(compute, {{append, {.operands = &digit, .layer = 1}},
                          {append, {.operands = &digit, .layer = 2}},
                          {device.kernel("count_up"), {.operands = &all, .layer = 7}},
                          {append, {.operands = &digit, .layer = 3}},
                          {device.kernel("count_workers"), {.operands = &count}}});
  EXPECT_EQ(digits, 123);
  EXPECT_EQ(workers, 3);
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(numbers[i], 7 + i);
  device.launch(copy, {{device.kernel("count_workers"), {.operands = &count}}});
  EXPECT_EQ(workers, 1);
}

TEST(CpuDevice, ReportsWhatAKernelThrowsAndAMissingKernel) {
  Opened device({.threads = 1});
  const Queue queue = device.create_queue("compute", true);
  EXPECT_TRUE(mentions(error_of([&] { device.launch(queue, {{device.kernel("fail"), {}}}); }), "own words"));
  EXPECT_EQ(error_of([&] { device.launch(queue, {{nullptr, {}}}); }).code(), ErrorCode::internal);
}

TEST(CpuDevice, DestroysOnlyItsOwnQueues) {
  Opened device({.threads = 2}), other({.threads = 2});
  const Queue queue = device.create_queue("compute", true);
  EXPECT_EQ(other->destroy_queue(queue).code, ErrorCode::internal);
  EXPECT_TRUE(device->destroy_queue(queue).ok());
  EXPECT_EQ(device->destroy_queue(queue).code, ErrorCode::internal);
}

TEST(CpuDevice, LaunchNeitherAllocatesNorLocks) {
  if (!test::calls_are_counted()) GTEST_SKIP() << "the sanitizer intercepts these calls itself";
  for (std::int64_t spin_us : {0, 50}) {
    Opened device({.threads = 2, .pin = false, .spin_us = spin_us});
    const Queue queue = device.create_queue("a", true);
    std::int64_t numbers[64] = {};
    const Tensor all = vector_of(numbers, 64);
    const std::vector<Launch> launches{{device.kernel("count_up"), {.operands = &all}}};
    const BoundWork work = device.bind(queue, launches);
    const test::Calls before = test::calls_so_far();
    bool ok = true;
    for (int round = 1; round <= 1'000; ++round) ok = ok && device->run(queue, work).ok();
    const test::Calls after = test::calls_so_far();
    EXPECT_TRUE(ok);
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.locks, before.locks);
    EXPECT_EQ(numbers[63], 63);
  }
}

TEST(CpuDevice, BlocksAndRefusesToBeUsedAsIfItDidNot) {
  Opened device({.threads = 1});
  EXPECT_FALSE(device.info().asynchronous);
  QueueEvent event = nullptr;
  const Status status = device->create_event(&event);
  EXPECT_EQ(status.code, ErrorCode::internal);
  EXPECT_TRUE(mentions(Error(status.code, std::string(status.message)), "blocking device"));
}

TEST(CpuDevice, AttachNamesAndPinsTheSubmitterUntilTheQueueGoes) {
  const std::vector<int> cores = usable_cores();
  std::thread([&] {
    Opened device({.threads = static_cast<std::int64_t>(cores.size())});
    const Queue queue = device.create_queue("a_name_longer_than_that", true);
    EXPECT_EQ(usable_cores(), cores);
    raise(device->attach(queue));
    char name[16] = {};
    prctl(PR_GET_NAME, name);
    EXPECT_STREQ(name, "prun-q-a_name_l");
    EXPECT_EQ(usable_cores(), std::vector<int>{cores[0]});
    raise(device->destroy_queue(queue));
    EXPECT_EQ(usable_cores(), cores);
  }).join();
}

std::vector<int> cores_of_submitter(Opened& device, Queue queue) {
  std::vector<int> allowed;
  std::thread([&] {
    raise(device->attach(queue));
    allowed = usable_cores();
  }).join();
  return allowed;
}

TEST(CpuDevice, PinsNoTwoQueuesToOneCore) {
  const std::vector<int> cores = usable_cores();
  Opened device({.threads = static_cast<std::int64_t>(cores.size())});
  const Queue first = device.create_queue("compute", true);
  EXPECT_EQ(cores_of_submitter(device, first), std::vector<int>{cores[0]});
  EXPECT_EQ(cores_of_submitter(device, device.create_queue("compute", true)), cores)
      << "no core is left for it";
  raise(device->destroy_queue(first));
  EXPECT_EQ(cores_of_submitter(device, device.create_queue("compute", true)), std::vector<int>{cores[0]});
  EXPECT_EQ(cores_of_submitter(device, device.create_queue("copy", false)), cores)
      << "a copying queue is not pinned";
}

TEST(CpuDevice, PinsOnlyAsManyThreadsAsThereAreCores) {
  const std::vector<int> cores = usable_cores();
  const auto threads = static_cast<std::int64_t>(cores.size());
  std::vector<Section> sections = {{.threads = threads, .pin = false}, {.threads = threads + 1}};
  if (threads > 1) sections.push_back({.threads = threads - 1});
  for (const Section& section : sections) {
    Opened device(section);
    EXPECT_EQ(cores_of_submitter(device, device.create_queue("compute", true)), cores) << section.threads;
  }
}

TEST(CpuDevice, RanksThatOutnumberCoresHaveAThreadEachAndAreNotPinned) {
  const std::vector<int> cores = usable_cores();
  for (const std::int64_t threads : {std::int64_t{0}, static_cast<std::int64_t>(cores.size())}) {
    Opened device({.threads = threads, .local_ranks = 1 << 20});
    EXPECT_EQ(device.info().threads, threads > 0 ? threads : 1);
    EXPECT_EQ(cores_of_submitter(device, device.create_queue("compute", true)), cores);
  }
}

}  // namespace
}  // namespace prun::cpu
