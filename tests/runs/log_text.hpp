// Logs as runs write them, for tests that read them.
#pragma once

#include <string>

#include "base/text.hpp"

namespace prun::test {

inline std::string start_line(double time, long steps, long first_step = 1,
                              const std::string& name = "demo") {
  return "{\"type\":\"start\",\"time\":" + std::to_string(time) + ",\"name\":\"" + name +
         "\",\"folder\":\"runs/demo\",\"recipe\":\"demo\",\"device\":\"cpu\",\"steps\":" +
         std::to_string(steps) + ",\"first_step\":" + std::to_string(first_step) +
         ",\"parameters\":1000,\"tokens_per_step\":512,\"flops_per_token\":6e3,\"peak_flops\":0,"
         "\"plan_bytes\":4096}\n";
}

inline std::string step_line(double time, long step, double loss, double seconds = 0.5,
                             const std::string& more = "") {
  return format(
             "{\"type\":\"step\",\"time\":%.3f,\"step\":%ld,\"loss\":%.17g,\"grad_norm\":0.25,\"lr\":0.001,"
             "\"kept\":true,\"targets\":512,\"seconds\":%.9f,\"elapsed\":1",
             time, step, loss, seconds) +
         more + "}\n";
}

inline std::string event_line(double time, const std::string& kind, const std::string& message) {
  return "{\"type\":\"event\",\"time\":" + std::to_string(time) + ",\"kind\":\"" + kind +
         "\",\"message\":\"" + message + "\"}\n";
}

inline std::string finish_line(double time) {
  return "{\"type\":\"finish\",\"time\":" + std::to_string(time) +
         ",\"memory\":[{\"plan_bytes\":4096,\"process_bytes\":1024,\"peak_bytes\":5000}]}\n";
}

}  // namespace prun::test
