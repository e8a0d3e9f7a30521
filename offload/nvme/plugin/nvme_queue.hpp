// Runs a queue of the tier: copies between drives and memory, one row of them after the other.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <span>

#include "nvme/store.hpp"
#include "prun/device.hpp"

namespace prun::nvme {

// Says where an address is on drives; without a store it is memory.
struct Place {
  Store* store = nullptr;
  std::int64_t offset = 0;
};
using FindPlace = std::function<Place(const void* address)>;

class NvmeQueue {
 public:
  explicit NvmeQueue(FindPlace find) : find_(std::move(find)) {}
  NvmeQueue(const NvmeQueue&) = delete;
  NvmeQueue& operator=(const NvmeQueue&) = delete;

  // Holds neighbours of one direction, which are moved together.
  struct Move {
    Store* store = nullptr;
    bool write = false;
    std::vector<MovedPiece> pieces;
  };
  // Holds the result of a row of launches.
  struct Work {
    std::vector<Move> moves;
  };
  Work* bind(std::span<const Launch> launches);
  void run(const Work& work);

 private:
  void add_copy(Work& work, const Launch& launch);
  Channel& channel_of(Store& store);

  const FindPlace find_;
  std::deque<Work> works_;
  std::map<Store*, std::unique_ptr<Channel>> channels_;
  bool told_ = false;  // whether it was logged that memory is not registered
};

}  // namespace prun::nvme
