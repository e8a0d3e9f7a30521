// Holds memory for what arrives before it is added: a few blocks, each as large as was ever asked of it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace prun::ucx {

class ScratchPool {
 public:
  // This many operations that reduce proceed at a time; the others wait.
  static constexpr std::size_t blocks = 8;

  // Returns null if all blocks are in use.
  std::byte* take(std::int64_t bytes);
  void give_back(const std::byte* block);

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::int64_t bytes = 0;
    bool used = false;
    std::byte* start() const;
  };
  std::array<Block, blocks> blocks_;
};

}  // namespace prun::ucx
