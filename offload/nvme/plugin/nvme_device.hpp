// Represents the tier nvme as a device: its space is a store over the drives of the recipe, its queues copy.
#pragma once

#include <list>
#include <mutex>

#include "address_space.hpp"
#include "nvme_queue.hpp"
#include "prun/plugin.hpp"

// These are the options that a recipe may set.
#define PRUN_NVME_OPTIONS                                                                                    \
  "paths | strings | [] | | Folders to stripe offloaded data over, one per drive\n"                          \
  "read_rate | floats | [] | 0.001..1000000 | GB/s that the drive of each folder reads at, in the order of " \
  "paths, for predictions; one number: all alike; empty: use the measured rate, else an assumed one\n"       \
  "write_rate | floats | [] | 0.001..1000000 | GB/s that the drive of each folder writes at; set both "      \
  "rates or neither\n"                                                                                       \
  "stripe_kib | int | 1024 | 4..65536 | Stripe size in KiB, which is also the transfer size; a multiple of " \
  "4\n"                                                                                                      \
  "depth | int | 16 | 1..1024 | Queue depth: transfers in flight per drive and direction\n"                  \
  "limit | int | 30 | 1..86400 | Timeout of a transfer in seconds, after which the run ends\n"               \
  "io | choice | auto | auto,io_uring,threads | I/O backend; auto: io_uring, or threads where that is "      \
  "forbidden\n"                                                                                              \
  "direct | bool | true | | Use direct I/O, bypassing the page cache, where the file system supports it\n"   \
  "checksum | bool | false | | Verify checksums of data that is read; they take a thousandth of its size "   \
  "in memory\n"                                                                                              \
  "plan_gib | float | 0 | 0..1073741824 | Plan as if the drives had this much free space, in GiB (to plan "  \
  "for another machine); 0: use what is free\n"

namespace prun::nvme {

class NvmeDevice : public Device {
 public:
  explicit NvmeDevice(const Options& options);

  DeviceInfo info() override;
  void* allocate(Space space, std::int64_t bytes) override;
  void release(Space space, void* memory, std::int64_t bytes) override;
  void upload(void* device, const void* host, std::int64_t bytes) override;
  void download(void* host, const void* device, std::int64_t bytes) override;
  void clear(void* device, std::int64_t bytes) override;
  const KernelDef* kernel(std::string_view op) override;
  Queue create_queue(std::string_view name, bool workers) override;
  void destroy_queue(Queue queue) override;
  void attach(Queue) override {}
  BoundWork bind(Queue queue, const Launch* launches, std::int64_t count) override;
  void run(Queue queue, BoundWork work) override;

 protected:
  // Makes the rings that run its transfers.
  virtual MakeRing make_ring();

 private:
  std::int64_t room_here(std::int64_t own) const;

  // Holds what was allocated, and the addresses that stand for it.
  struct Range {
    Range(const Settings& settings, std::int64_t bytes, MakeRing make)
        : addresses(bytes), store(settings, bytes, std::move(make)) {}
    AddressSpace addresses;
    Store store;
  };

  Range& range_at(const void* address);
  Place find(const void* address);
  void use_threads(const std::string& why);
  void announce(const Store& store);

  Settings settings_;
  std::string io_, name_;
  std::mutex instead_mutex_;  // needed since stores open channels from several threads
  std::string instead_;       // why there is no io_uring, or no more of it
  bool announced_ = false;
  std::int64_t planned_bytes_ = 0;
  std::int32_t local_ranks_ = 1;
  std::mutex mutex_;
  std::list<Range> ranges_;
  std::list<NvmeQueue> queues_;
};

}  // namespace prun::nvme
