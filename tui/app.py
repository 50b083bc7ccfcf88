"""The monitor: one thread that asks the source, one picture, and the pages that draw it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType

from mrstream.cluster.errors import ClusterError, UserError
from mrstream.cluster.terminal import masked
from mrstream.tui.messages import ActionDone, ClusterChanged, JobChanged, MasterBack, MasterLost
from mrstream.tui.screens.confirm import Confirm, Help
from mrstream.tui.screens.files import FilesScreen
from mrstream.tui.screens.hosts import HostsScreen
from mrstream.tui.screens.job import JobScreen
from mrstream.tui.screens.jobs import JobsScreen
from mrstream.tui.screens.page import Page
from mrstream.view.actions import Action
from mrstream.view.picture import Picture
from mrstream.view.source import Source

Answer = TypeVar("Answer")

REFRESH_S = 0.5
STORAGE_EVERY = 4
"""The chunk table is asked at every fourth refresh: it changes slowly."""


class Monitor(App[None]):
    """`mrstream top`."""

    TITLE = "mrstream"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "page('jobs')", "Jobs"),
        Binding("2", "page('hosts')", "Hosts"),
        Binding("3", "page('files')", "Files"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, source: Source, *, job_id: str = "", read_only: bool = False) -> None:
        super().__init__()
        self.source = source
        self.read_only = read_only
        self.picture = Picture(cluster=source.cluster)
        self._first_job = job_id
        self._watched = ""
        self._wake = threading.Event()
        self._ending = threading.Event()

    def on_mount(self) -> None:
        self.install_screen(JobsScreen(), "jobs")
        self.install_screen(HostsScreen(), "hosts")
        self.install_screen(FilesScreen(), "files")
        self.push_screen("jobs")
        if self._first_job:
            self.push_screen(JobScreen(self._first_job))
        self._ask_for_ever()

    def on_unmount(self) -> None:
        self._ending.set()
        self._wake.set()
        self.source.close()

    # --- what the pages use

    def watch_job(self, job_id: str) -> None:
        """Ask for this job's details too from now on; none if empty."""
        self._watched = job_id
        self.picture.forget_job()
        self._wake.set()

    def ask(self, question: Callable[[Source], Answer], then: Callable[[Answer], object]) -> None:
        """Put a question to the source in a thread, and give the answer to `then` in this one."""

        def run() -> None:
            try:
                answer = question(self.source)
            except ClusterError as error:
                self.call_from_thread(self.notify, str(error), severity="error")
                return
            if not self._ending.is_set():
                self.call_from_thread(then, answer)

        self.run_worker(run, thread=True, group="ask", exit_on_error=True)

    def act(self, action: Action) -> None:
        """Have something done, and say how it ended."""

        def run() -> None:
            try:
                self.post_message(ActionDone(action.act(self.source), failed=False))
            except ClusterError as error:
                self.post_message(ActionDone(str(error), failed=True))
            self._wake.set()

        self.run_worker(run, thread=True, group="act", exit_on_error=True)

    def confirm(self, action: Action) -> None:
        """Have something done if the user says yes."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.act(action)

        self.push_screen(Confirm(action.question), answered)

    # --- keys and messages

    def action_page(self, name: str) -> None:
        while len(self.screen_stack) > 2:
            self.pop_screen()
        self.switch_screen(name)

    def action_help(self) -> None:
        if not isinstance(self.screen, Help):
            self.push_screen(Help())

    def notify(self, message: str, *, markup: bool = False, **options: Any) -> None:
        """Say something for a while; what it quotes is text, whatever is in it."""
        super().notify(masked(message), markup=False, **options)

    def on_cluster_changed(self, _: ClusterChanged) -> None:
        self._redraw()

    def on_job_changed(self, _: JobChanged) -> None:
        self._redraw()

    def on_master_lost(self, lost: MasterLost) -> None:
        if not self.picture.lost_reason:
            self.picture.lost_at_s = self.source.now_s()
        self.picture.lost_reason = lost.reason
        self._redraw()

    def on_master_back(self, _: MasterBack) -> None:
        self.picture.lost_reason = ""
        self.notify("the master answers again", timeout=3)
        self._redraw()

    def on_action_done(self, done: ActionDone) -> None:
        self.notify(done.text, severity="error" if done.failed else "information")

    def _redraw(self) -> None:
        """Draw the page on top; the others draw themselves when they come back."""
        if isinstance(self.screen, Page):
            self.screen.redraw()

    # --- the thread that asks

    @work(thread=True, group="source", exit_on_error=True)
    def _ask_for_ever(self) -> None:
        rounds = 0
        while not self._ending.is_set():
            self._ask_groups()
            try:
                self._ask_once(with_storage=rounds % STORAGE_EVERY == 0)
            except ClusterError as error:
                self.post_message(MasterLost(str(error)))
            rounds += 1
            self._wake.wait(REFRESH_S)
            self._wake.clear()

    def _ask_groups(self) -> None:
        """What members of groups say needs no master that leads: it is asked without one."""
        picture, groups = self.picture, self.source.groups()
        if groups == picture.groups or self._ending.is_set():
            return

        def take() -> None:
            for event in picture.see_groups(groups, self.source.now_s()):
                self.notify(event.text)
            self._redraw()

        self.call_from_thread(take)

    def _ask_once(self, *, with_storage: bool) -> None:
        picture = self.picture
        news = self.source.snapshot(picture.hosts.version, picture.jobs.version)
        storage = self.source.storage() if with_storage else picture.storage
        job_news = None
        refusal = ""
        if self._watched:
            board, seen = picture.job, picture.job_seen
            try:
                job_news = self.source.job(self._watched, seen if board else type(seen)())
            except UserError as error:  # such as a job that ended before the master started anew
                refusal = str(error)
        if self._ending.is_set():
            return

        def take() -> None:
            if picture.lost_reason:
                self.post_message(MasterBack())
            differs = picture.see_cluster(news) or storage != picture.storage
            picture.storage = storage
            if job_news is not None and job_news.job.key == self._watched:
                picture.see_job(job_news)
                self.post_message(JobChanged())
            elif refusal != picture.job_refusal:
                picture.job_refusal = refusal
                self.post_message(JobChanged())
            elif differs:
                self.post_message(ClusterChanged())
            elif isinstance(self.screen, Page):
                self.screen.tick()

        self.call_from_thread(take)
