// Channels of the tier that the system gives no ring for: threads move their bytes, which is said once.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "prun/device.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::channels_test {
namespace {

constexpr std::int64_t count = 4096, bytes = count * 4;

// No file can be opened, and so no ring made, while it lives.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

// A tier with a place on its drive and some memory.
class Channels : public testing::Test {
 protected:
  void open(const std::string& io) {
    device_ = plugins().create<DeviceInterface>(
        "device", "nvme", tiny_recipe({"tier.nvme.io=" + io}, offloaded_to_drives(folder_.path())));
    raise(device_->allocate(Space::disk, bytes, &disk_));
    for (Tensor* tensor : {&out_[0], &out_[1]}) {
      tensor->data = tensor == &out_[0] ? memory_.get() : disk_;
      tensor->rank = 1;
      tensor->dim[0] = count;
    }
  }
  ~Channels() override {
    if (device_) device_->release(Space::disk, disk_, bytes);
  }

  // Memory to disk by a queue, and so a channel, of its own; what that is refused with.
  std::string copy_out(float number) {
    std::fill_n(static_cast<float*>(memory_.get()), count, number);
    OpShape shape;
    const Dim dim{"elements", count};
    shape.count = 2;
    for (int i = 0; i < 2; ++i) shape.output(i, DType::f32, &dim, 1);
    Launch launch;
    launch.kernel = device_->kernel("copy")->select(shape);
    launch.op = "copy";
    launch.args.operands = out_;
    launch.args.operand_count = 2;
    launch.args.changes = 2;
    Queue queue = nullptr;
    raise(device_->create_queue("copy", false, &queue));
    BoundWork work = nullptr;
    Status status = device_->bind(queue, &launch, 1, &work);
    if (status.ok()) status = device_->run(queue, work);
    const std::string refused = status.message;
    raise(device_->destroy_queue(queue));
    return refused;
  }
  std::vector<float> on_disk() {
    std::vector<float> numbers(count);
    raise(device_->download(numbers.data(), disk_, bytes));
    return numbers;
  }

 private:
  const TempFolder folder_;
  std::shared_ptr<DeviceInterface> device_;
  void* disk_ = nullptr;
  // A tier has none of its own; drives want whole blocks.
  const std::unique_ptr<void, decltype(&std::free)> memory_{std::aligned_alloc(4096, bytes), &std::free};
  Tensor out_[2];
};

TEST_F(Channels, GoOnWithThreadsWhereTheSystemGivesNoMoreRings) {
  open("auto");
  testing::internal::CaptureStderr();
  EXPECT_EQ(copy_out(1), "");
  EXPECT_EQ(on_disk(), std::vector<float>(count, 1));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  for (const float number : {2.0f, 3.0f}) {
    const NoMoreFiles none;
    EXPECT_EQ(copy_out(number), "");
    EXPECT_EQ(on_disk(), std::vector<float>(count, number));
  }
  const std::string said = testing::internal::GetCapturedStderr(), once = "gives no more of io_uring (";
  EXPECT_NE(said.find(once), std::string::npos) << said;
  EXPECT_EQ(said.find(once), said.rfind(once)) << said;
}

TEST_F(Channels, AreRefusedWithASentenceWhereTheRecipeWantsRingsAlone) {
  open("io_uring");
  const NoMoreFiles none;
  EXPECT_NE(copy_out(1).find("device plugin 'nvme': the system forbids io_uring (Too many open files); allow "
                             "it, or leave [tier.nvme] io out"),
            std::string::npos)
      << copy_out(1);
}

}  // namespace
}  // namespace prun::test::channels_test
