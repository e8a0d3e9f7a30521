// CUB's stable sort of pairs by their keys, on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

namespace cub {

struct DeviceRadixSort {
  template <class Key, class Value>
  static cudaError_t SortPairs(void* space, std::size_t& space_bytes, const Key* keys, Key* sorted_keys,
                               const Value* values, Value* sorted_values, int count, int begin_bit,
                               int end_bit, cudaStream_t) {
    if (!space) {
      space_bytes = static_cast<std::size_t>(count) * (sizeof(Key) + sizeof(Value));
      return cudaSuccess;
    }
    const auto compared = [&](int i) {
      return keys[i] << (8 * sizeof(Key) - static_cast<std::size_t>(end_bit)) >>
             (8 * sizeof(Key) - static_cast<std::size_t>(end_bit - begin_bit));
    };
    std::vector<int> order(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return compared(a) < compared(b); });
    std::vector<Key> keys_in_order;
    std::vector<Value> values_in_order;
    for (const int from : order) keys_in_order.push_back(keys[from]), values_in_order.push_back(values[from]);
    cudaMemcpy(sorted_keys, keys_in_order.data(), order.size() * sizeof(Key), cudaMemcpyHostToDevice);
    return cudaMemcpy(sorted_values, values_in_order.data(), order.size() * sizeof(Value),
                      cudaMemcpyHostToDevice);
  }
};

}  // namespace cub
