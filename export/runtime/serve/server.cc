#include "server.h"

// Its own value, 5, makes the kernel reset connections when many clients come at once.
#define CPPHTTPLIB_LISTEN_BACKLOG 1024
// As many bytes as in a body of any other kind: `curl -d` sends JSON as a form.
#define CPPHTTPLIB_FORM_URL_ENCODED_PAYLOAD_MAX_LENGTH (1 << 20)

#include <httplib.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "answers.h"
#include "error.h"
#include "json_text.h"
#include "served.h"

namespace seqlab::serve {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using tools::Dumped;

constexpr size_t kMostBodyBytes = size_t{1} << 20;
constexpr seconds kReadSeconds{10}, kWriteSeconds{10}, kMostSeconds{600}, kDrainSeconds{120};
constexpr milliseconds kLook{100};  // how often a client that says nothing is looked after

// Compares in a time that does not tell where the texts differ.
bool Same(const std::string& one, const std::string& other) {
  unsigned char differ = one.size() != other.size();
  for (size_t place = 0; place < one.size() && place < other.size(); ++place) differ |= one[place] ^ other[place];
  return differ == 0;
}

// Counts what is being answered, for as long as a copy lives.
class Answering {
 public:
  explicit Answering(std::shared_ptr<std::atomic<int>> count) : count_(std::move(count)) { ++*count_; }
  Answering(const Answering& other) : count_(other.count_) { ++*count_; }
  Answering& operator=(const Answering&) = delete;
  ~Answering() { --*count_; }

 private:
  std::shared_ptr<std::atomic<int>> count_;
};

class Server {
 public:
  Server(const std::vector<std::string>& folders, const OpenOptions& open, const ServeOptions& options)
      : options_(options), bundles_(folders, open, options.engine) {
    const size_t most = static_cast<size_t>(options.connections);
    // All threads from the start: its growing pool leaves connections that come together to one thread.
    http_.new_task_queue = [most] { return new httplib::ThreadPool(most, most, most); };
    // Not SO_REUSEPORT, with which a second server would share the port.
    http_.set_socket_options([](socket_t listener) {
      const int yes = 1;
      setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.set_payload_max_length(kMostBodyBytes);
    http_.set_read_timeout(kReadSeconds);
    http_.set_write_timeout(kWriteSeconds);
    http_.set_tcp_nodelay(true);
    http_.set_pre_routing_handler([this](const Request& request, Response& response) {
      if (Allowed(request)) return Unhandled;
      Put(response, HttpError{401, "the API key is missing or wrong", "", "invalid_api_key"});
      return httplib::Server::HandlerResponse::Handled;
    });
    http_.set_error_handler([](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      const std::string what = response.status == 404   ? Join("there is no ", request.method, " ", request.path)
                               : response.status == 413 ? Join("a body has at most ", kMostBodyBytes, " bytes")
                                                        : "the request is not HTTP as this server reads it";
      Put(response, HttpError{response.status, what, "", ""});
    });
    http_.set_logger([this](const Request& request, const Response& response) {
      const std::lock_guard lock(mutex_);
      ++by_status_[response.status];
      if (!options_.log) return;
      std::cerr << Join(request.remote_addr, " ", request.method, " ", request.target, " ", response.status)
                << std::endl;
    });
    Route();
  }

  Status Run() {
    // Every thread that starts from here on leaves the signals to this one's.
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    if (const Status opened = bundles_.Open(); !opened.ok()) return opened;
    const int port = options_.host.empty()                              ? -1  // It would be every address.
                     : options_.port == 0                               ? http_.bind_to_any_port(options_.host)
                     : http_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                        : -1;
    if (port < 0) {
      return {StatusCode::kInvalidArgument,
              Join("cannot listen at '", options_.host, "', port ", options_.port, "; is it in use?")};
    }
    std::string names;
    for (const auto& served : bundles_.All()) names += Join(names.empty() ? "" : ", ", served->name);
    std::cerr << "seqlab-run: serving " << names << " at http://" << options_.host << ":" << port << std::endl;
    if (options_.api_key.empty() && options_.host != "127.0.0.1" && options_.host != "localhost") {
      std::cerr << "seqlab-run: anyone who reaches " << options_.host
                << " may use this server; set SEQLAB_API_KEY to ask for a key" << std::endl;
    }
    std::thread waits([&] { Obey(signals); });
    const Status listened = Guarded([&] { http_.listen_after_bind(); });
    const bool told = draining_;
    pthread_kill(waits.native_handle(), SIGUSR1);  // if no signal has ended the server
    waits.join();
    if (told) return {};
    return {StatusCode::kInternal, "the server cannot accept connections any more: " +
                                       (listened.ok() ? std::string(std::strerror(errno)) : listened.message())};
  }

 private:
  // What probes and Prometheus ask for, which have no key.
  static inline const std::set<std::string> kOpen = {"/health", "/ready", "/metrics"};
  static constexpr auto Unhandled = httplib::Server::HandlerResponse::Unhandled;

  void Obey(const sigset_t& signals) {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
      Status opened;
      const Status guarded = Guarded([&] { opened = bundles_.Open(); });
      if (!guarded.ok()) opened = guarded;
      std::cerr << "seqlab-run: "
                << (opened.ok() ? "opened the bundles anew" : "kept the bundles that are open: " + opened.message())
                << std::endl;
    }
    draining_ = true;
    std::cerr << "seqlab-run: answering what has begun, then stopping" << std::endl;
    // Another one ends the process at once.
    sigset_t ends;
    sigemptyset(&ends);
    for (const int another : {SIGTERM, SIGINT}) sigaddset(&ends, another);
    pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
    const auto most = steady_clock::now() + kDrainSeconds;
    while (*answering_ > 0 && steady_clock::now() < most) std::this_thread::sleep_for(milliseconds(20));
    expired_ = true;
    http_.wait_until_ready();  // `stop` does nothing before that
    http_.stop();
  }

  bool Allowed(const Request& request) const {
    if (options_.api_key.empty() || kOpen.count(request.path) > 0) return true;
    return Same(request.get_header_value("Authorization"), "Bearer " + options_.api_key);
  }

  static void Put(Response& response, const HttpError& error) {
    response.status = error.status;
    if (error.status == 503) response.set_header("Retry-After", "1");
    response.set_content(Dumped(ErrorBody(error)), "application/json");
  }

  // Answers with what `answer` puts into the response, or with the error that it throws.
  httplib::Server::Handler Answered(std::function<void(const Request&, Response&)> answer) {
    return [this, answer = std::move(answer)](const Request& request, Response& response) {
      const Answering now(answering_);
      try {
        if (draining_) throw HttpError{503, "the server stops", "", "overloaded"};
        answer(request, response);
      } catch (const HttpError& error) {
        Put(response, error);
      } catch (const std::exception& error) {
        Put(response, HttpError{500, error.what(), "", ""});
      }
    };
  }

  void Route() {
    const auto plain = [](const std::string& text) {
      return [text](const Request&, Response& response) { response.set_content(text, "text/plain"); };
    };
    http_.Get("/health", plain("ok\n"));
    http_.Get("/ready", Answered(plain("ready\n")));
    http_.Get("/metrics", [this](const Request&, Response& response) {
      response.set_content(Metrics(), "text/plain; version=0.0.4");
    });
    http_.Get("/v1/models", Answered([this](const Request&, Response& response) {
                response.set_content(Dumped(ModelsBody(bundles_.All())), "application/json");
              }));
    http_.Get("/v1/models/(.+)", Answered([this](const Request& request, Response& response) {
                response.set_content(Dumped(ModelBody(*bundles_.Get(request.matches[1]))), "application/json");
              }));
    http_.Post("/v1/completions", Answered([this](const Request& request, Response& response) {
                 Complete(request, ReadCompletion(request.body), response);
               }));
    http_.Post("/v1/chat/completions", Answered([this](const Request& request, Response& response) {
                 Complete(request, ReadChat(request.body), response);
               }));
    for (const char* path : {"/translate", "/classify", "/tag"}) {
      http_.Post(path, Answered([this, path](const Request& request, Response& response) {
                   const TextsRequest asked = ReadTexts(request.body, path == std::string("/translate"));
                   response.set_content(Dumped(TextsBody(*bundles_.Get(asked.model), asked, path, LookAt(request))),
                                        "application/json");
                 }));
    }
  }

  void Complete(const Request& request, const CompletionRequest& asked, Response& response) {
    const std::shared_ptr<Served> served = bundles_.Get(asked.model);
    if (!served->engine) throw HttpError{400, Join("model ", served->name, " continues no text"), "model", ""};
    if (asked.chat && !served->model.info().chats) {
      throw HttpError{400, Join("model ", served->name, " has no chat template; ask /v1/completions"), "model", ""};
    }
    auto writing = std::make_shared<CompletionAnswer>(served, asked);
    if (!asked.stream) {
      const std::function<void()> look = LookAt(request);
      while (!writing->done()) {
        writing->Wait(kLook);
        look();
      }
      response.set_content(Dumped(writing->Body()), "application/json");
      return;
    }
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        "text/event-stream", [writing, end = steady_clock::now() + kMostSeconds, now = Answering(answering_)](
                                 size_t, httplib::DataSink& sink) {
          std::string events;
          bool done = false;
          try {
            if (steady_clock::now() > end) throw TooLong();
            events = writing->Events(kLook);
            done = writing->done();
          } catch (const HttpError& error) {
            events = Join("data: ", Dumped(ErrorBody(error)), "\n\n");
            done = true;
          } catch (const std::exception& error) {
            events = Join("data: ", Dumped(ErrorBody({500, error.what(), "", ""})), "\n\n");
            done = true;
          }
          if (done) events += "data: [DONE]\n\n";
          // A client that does not read makes `write` fail after kWriteSeconds, and its texts are cancelled.
          if (events.empty() ? !sink.is_writable() : !sink.write(events.data(), events.size())) return false;
          if (done) sink.done();
          return true;
        });
  }

  // Returns what throws if nobody waits for the answer to a request any more, or it has taken too long.
  std::function<void()> LookAt(const Request& request) const {
    return [this, &request, end = steady_clock::now() + kMostSeconds] {
      if (request.is_connection_closed()) throw HttpError{499, "the client has gone", "", ""};
      if (expired_) throw HttpError{503, "the server stops", "", "overloaded"};
      if (steady_clock::now() > end) throw TooLong();
    };
  }

  static HttpError TooLong() {
    return {408, Join("the request took more than ", kMostSeconds.count(), " seconds"), "", "timeout"};
  }

  std::string Metrics() const {
    MetricLines lines;
    for (const auto& served : bundles_.All()) {
      const std::string labels = Label("model", served->name);
      if (!served->engine) continue;
      AddEngine(served->engine->stats(), labels, lines);
      served->timings->Add(labels, lines);
    }
    const std::lock_guard lock(mutex_);
    for (const auto& [status, count] : by_status_) {
      lines.Add("seqlab_http_responses_total", "counter", "", Label("status", std::to_string(status)), count);
    }
    return lines.Text();
  }

  const ServeOptions options_;
  Bundles bundles_;
  httplib::Server http_;
  std::atomic<bool> draining_{false}, expired_{false};
  std::shared_ptr<std::atomic<int>> answering_ = std::make_shared<std::atomic<int>>(0);
  mutable std::mutex mutex_;
  std::map<int, int64_t> by_status_;
};

}  // namespace

Status Serve(const std::vector<std::string>& folders, const OpenOptions& open, const ServeOptions& options) {
  Status ended;
  const Status guarded = Guarded([&] { ended = Server(folders, open, options).Run(); });
  return guarded.ok() ? ended : guarded;
}

}  // namespace seqlab::serve
