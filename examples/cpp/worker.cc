// worker BUNDLE THREADS: a server's worker, which answers many requests at once with one model.
//
// A request is a line of standard input: a text to continue, or to translate if the bundle reads a source. Its answer
// is a line of standard output, printed as soon as it is ready: the number of the request, from 1, a tab and the text.
// A request that fails is reported on standard error, and the others are still answered.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seqlab/runtime.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = 64;
constexpr auto kLongestAnswer = std::chrono::seconds(60);

struct Request {
  uint64_t number = 0;
  std::string text;
};

// The requests that wait for a thread.
class Queue {
 public:
  // Adds a request; waits while there are too many.
  void Put(Request request) {
    std::unique_lock<std::mutex> lock(mutex_);
    has_room_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
    waiting_.push_back(std::move(request));
    has_more_.notify_one();
  }

  // Declares that no more requests will come.
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    has_more_.notify_all();
  }

  // Waits for a request and returns it; none = no more will come.
  std::optional<Request> Take() {
    std::unique_lock<std::mutex> lock(mutex_);
    has_more_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return std::nullopt;
    Request next = std::move(waiting_.front());
    waiting_.pop_front();
    has_room_.notify_one();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_room_, has_more_;
  std::deque<Request> waiting_;
  bool closed_ = false;
};

seqlab::Result<std::string> Answer(seqlab::Session& session, bool translates, const Request& request) {
  if (translates) {
    const auto found = session.Translate({request.text});
    if (!found.ok()) return found.status();
    return found->at(0).at(0).text;
  }
  seqlab::GenerateOptions options;
  options.max_new_tokens = 60;
  options.sampling.temperature = 0.8;
  options.sampling.seed = request.number;  // the same answer, whichever thread gives it
  const Clock::time_point end = Clock::now() + kLongestAnswer;
  return session.Write(request.text, options, [end](std::string_view) { return Clock::now() < end; });
}

// Serves requests on one thread, with a session that it keeps from request to request.
void Serve(const seqlab::Model& model, Queue& requests, std::mutex& output) {
  seqlab::Session session(model);
  while (const std::optional<Request> request = requests.Take()) {
    const seqlab::Result<std::string> answer = Answer(session, model.info().reads_source, *request);
    const std::lock_guard<std::mutex> lock(output);
    if (answer.ok()) {
      std::cout << request->number << "\t" << *answer << std::endl;
    } else {
      std::cerr << "request " << request->number << ": " << answer.status().message() << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc == 3 ? std::atoi(argv[2]) : 0;
  if (count < 1) {
    std::cerr << "usage: worker BUNDLE THREADS\n";
    return 2;
  }
  seqlab::OpenOptions options;
  options.threads = 1;  // per run: the requests are what runs in parallel
  const seqlab::Result<seqlab::Model> model = seqlab::Model::Open(argv[1], options);
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 2;
  }
  {
    seqlab::Session first(*model);  // the first run of a graph takes longer: no request should wait for it
    (void)Answer(first, model->info().reads_source, {0, "a"});
  }
  Queue requests;
  std::mutex output;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < count; ++thread) threads.emplace_back([&] { Serve(*model, requests, output); });
  Request next;
  while (std::getline(std::cin, next.text)) {
    ++next.number;
    requests.Put(next);
  }
  requests.Close();
  for (std::thread& thread : threads) thread.join();
}
